"""Hardware-aware prefix scheduler: how many draft tokens of each request are worth verifying.

Algorithm 1 of the DSpark paper. Verifying a token costs batch capacity, and it pays with the
probability that it survives. Candidates are admitted by descending survival while the expected
throughput rises, and **the search stops at the first candidate that does not raise it**. Stopping
is what keeps the output law exact: looking past a dip would let the confidence of token j + 1,
which depends on token j, decide whether token j is verified (the paper's Appendix A).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    lengths: tuple[int, ...]
    """Draft tokens to verify, per request."""
    throughput: float
    """Expected committed tokens per second at these lengths."""


def schedule(confidence: Sequence[Sequence[float]], steps_per_second: Sequence[float]) -> Schedule:
    """Choose verify lengths for the active requests.

    ``confidence[r][j]`` is the calibrated probability that draft token j of request r survives given
    that those before it did. ``steps_per_second[i]`` is the capacity when the target processes i + 1
    tokens. Raises ValueError when the capacity table does not reach one token per request.
    """
    requests = len(confidence)
    if len(steps_per_second) < requests:
        raise ValueError(
            f"the capacity table ends at {len(steps_per_second)} tokens: "
            f"{requests} active requests need at least {requests}"
        )
    if requests == 0:
        return Schedule(lengths=(), throughput=0.0)
    lengths = [0] * requests
    tokens = requests
    expected = float(requests)
    best = expected * steps_per_second[tokens - 1]
    for survival, request, length in _candidates(confidence):
        if tokens == len(steps_per_second):
            break
        expected += survival
        throughput = expected * steps_per_second[tokens]
        if throughput <= best:
            break
        tokens += 1
        best = throughput
        lengths[request] = length
    return Schedule(lengths=tuple(lengths), throughput=best)


def _candidates(confidence: Sequence[Sequence[float]]) -> list[tuple[float, int, int]]:
    """(survival, request, length) by descending survival; equal survival goes to the shorter prefix."""
    found = []
    for request, row in enumerate(confidence):
        survival = 1.0
        for length, probability in enumerate(row, start=1):
            survival *= probability
            if survival <= 0.0:
                break
            found.append((survival, request, length))
    return sorted(found, key=lambda item: (-item[0], item[2], item[1]))
