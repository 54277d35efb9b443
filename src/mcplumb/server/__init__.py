"""The server: what authors use to write one."""
