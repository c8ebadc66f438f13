"""A fixed piece of work whose time says how fast this machine is just now.

One thread copies memory and computes; nothing in it depends on what is being measured, so a change of its
time is a change of the machine.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

PASSES = 3
COPY_BYTES = 96 * 1024 * 1024
"""Beyond the private caches of a core, so that memory is moved."""
COMPUTE_VALUES = 16 * 1024
"""Inside a core's second-level cache, so that arithmetic is timed."""
COMPUTE_REPEATS = 360
"""Makes the two halves of a pass about equal: together 20 to 30 ms on a server core of 2023."""


class Probe:
    """Buffers are allocated and touched once; each reading costs ``PASSES`` passes."""

    def __init__(self) -> None:
        self._source = np.ones(COPY_BYTES // 8)
        self._copy = np.zeros_like(self._source)
        self._values = np.linspace(0.0, 1.0, COMPUTE_VALUES)
        self._result = np.zeros_like(self._values)
        self._pass()

    def seconds(self) -> float:
        """Median time of a pass: one interruption does not move it."""
        return statistics.median(self._pass() for _ in range(PASSES))

    def _pass(self) -> float:
        # Elementwise on purpose: a matrix product would start the threads of a linear algebra library.
        started = time.perf_counter()
        np.copyto(self._copy, self._source)
        for _ in range(COMPUTE_REPEATS):
            np.exp(self._values, out=self._result)
            np.sqrt(self._result, out=self._result)
        return time.perf_counter() - started
