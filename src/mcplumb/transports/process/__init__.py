"""Child processes: launch, supervise and stop them."""
