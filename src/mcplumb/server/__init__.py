"""What servers are written with."""
