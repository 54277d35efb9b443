"""Servers as child processes: find the program, start it, watch it, drain its stderr and stop its process tree."""
