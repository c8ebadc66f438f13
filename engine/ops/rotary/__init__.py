"""Rotary position embedding."""

from __future__ import annotations

from engine.ops.rotary.reference import rotate

__all__ = ["rotate"]
