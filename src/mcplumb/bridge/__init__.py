"""The bridge: any client with any server, over any transport, in any era; and several servers as one."""
