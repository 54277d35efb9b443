"""Running a server: its process, its addresses and its sessions."""
