"""``mcplumb shell``."""
