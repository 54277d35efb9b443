"""Recordings of sessions: their format, the writer that never blocks, and the folder that keeps them."""
