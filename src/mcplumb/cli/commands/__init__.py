"""The commands of ``mcplumb``, one module each."""
