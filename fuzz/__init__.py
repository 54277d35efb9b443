"""Fuzzing of the wire layer: ``python -m fuzz``."""
