"""One folder per operation: ``reference.py`` is the plain definition, siblings are faster paths."""
