"""Trusted parent of every worker: ``python -m harness.manager REQUEST.json RESULT.json``."""
