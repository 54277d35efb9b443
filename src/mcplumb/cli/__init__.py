"""The ``mcplumb`` command line."""
