"""An LLM inference engine with DSpark speculative decoding."""

import os

# A decode step crosses some two hundred parallel regions. Threads that sleep between them cost half a step in
# wake-ups; threads that spin for long take the core from the one they wait for as soon as anything else runs
# on the machine. So they spin for tens of microseconds and then sleep. OpenMP reads this once, when torch is
# imported, which is after this line.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "20000")
