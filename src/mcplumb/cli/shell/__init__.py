"""The interactive ``mcplumb shell``."""
