"""How results are shown on a terminal."""
