"""Progress of a run as JSON lines on standard output: what runs, how far, and time left.

Events: ``run_started`` {plan, total}; ``launch_started`` and ``launch_finished`` {arm, case, quad, slot,
done, total, eta_s}, the latter also {ok, duration_s, detail}. ``eta_s`` is None until something was measured.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, TextIO

from harness import schedule
from harness.schema import Arm, Case, Launch, RunPlan
from harness.session import Place


class Progress:
    """Counts launches against the plan and weighs the time left by what each kind took so far."""

    def __init__(self, plan: RunPlan, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._planned = schedule.launches(plan)
        self._left = {case: count for case, (count, _) in self._planned.items()}
        self._total = sum(self._left.values())
        self._done = 0
        self._spent_s = 0.0
        self._expected_s = 0.0
        self._started = time.perf_counter()
        self._say("run_started", total=self._total, plan=plan.name)

    def extended(self, case: Case, quads: int) -> None:
        """Counts further quads of an undecided case, and the launch that admits their prompts."""
        more = {schedule.admission(case.model): 1, case.name: 4 * quads}
        for name, count in more.items():
            self._left[name] = self._left.get(name, 0) + count
            self._total += count

    def launch_started(self, arm: Arm, place: Place) -> None:
        self._say("launch_started", **self._where(arm, place.case, place.quad, place.slot))

    def launch_finished(self, launch: Launch) -> None:
        ok = launch.failure is None
        if ok and self._left.get(launch.case, 0) > 0:
            self._left[launch.case] -= 1
            self._done += 1
            self._spent_s += launch.duration_s
            self._expected_s += self._planned[launch.case][1]
        self._say(
            "launch_finished",
            **self._where(launch.arm, launch.case, launch.quad, launch.slot),
            ok=ok,
            duration_s=round(launch.duration_s, 3),
            detail=launch.failure.detail if launch.failure else "",
        )

    def _where(self, arm: Arm, case: str, quad: int, slot: int) -> dict[str, Any]:
        return {
            "arm": arm,
            "case": case,
            "quad": quad,
            "slot": slot,
            "done": self._done,
            "total": self._total,
            "eta_s": self._eta_s(),
        }

    def _eta_s(self) -> float | None:
        if self._expected_s == 0:
            return None
        left = sum(count * self._planned[case][1] for case, count in self._left.items())
        return round(left * self._spent_s / self._expected_s, 1)

    def _say(self, event: str, **facts: Any) -> None:
        print(json.dumps({"event": event, **facts}), file=self._stream, flush=True)
