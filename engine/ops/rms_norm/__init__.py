"""Root-mean-square norm over the last dimension."""

from __future__ import annotations

from engine.ops.rms_norm.reference import rms_norm

__all__ = ["rms_norm"]
