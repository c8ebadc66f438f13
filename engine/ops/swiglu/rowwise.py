"""SwiGLU of a few rows on the CPU, each with the bits it would have alone.

PyTorch walks a buffer in vectors and finishes the remainder with scalar code, whose exp rounds
differently; from ``_SERIAL_ELEMENTS`` on it also cuts the buffer between threads, anywhere. So the
buffer of one call holds whole rows that are whole vectors and is small enough for one thread, or
else it holds a single row.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROWS = 8
"""Most rows for which this matters: the width of a verify pass."""

_VECTOR_ELEMENTS = 32
_SERIAL_ELEMENTS = 32768


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """gate, up: [n, m] float32; returns [n, m]."""
    width = gate.shape[-1]
    rows_per_call = 1 if width % _VECTOR_ELEMENTS else max(1, (_SERIAL_ELEMENTS - 1) // width)
    parts = [torch.nn.functional.silu(rows) for rows in gate.split(rows_per_call)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts)) * up
