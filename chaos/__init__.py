"""`python -m chaos`: real servers that fail in every way, under a client that must lose nothing and leave nothing."""
