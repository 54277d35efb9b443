"""The section *Watch*: sessions, live and recorded."""
