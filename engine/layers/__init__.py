"""Modules that hold parameters and call ops."""
