"""From an admitted request to its outcome."""
