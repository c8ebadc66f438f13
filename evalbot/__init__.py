"""Decides and speaks: checks out, pins, builds, has measured, judges, reports."""

__version__ = "0.1.0"
