"""Layer 2: the protocol's rules as state machines. No I/O, no tasks, no clock: time is an argument."""
