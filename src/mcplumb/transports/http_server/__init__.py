"""The server's side of HTTP: an ASGI application of our own, without a framework, and what runs it.

A request passes the `guards`; then `app` finds out in which era its client speaks. A modern request is an `Exchange`
of its own, a legacy client has one of the `Sessions`, and a client of HTTP+SSE one of the `SsePairs`. Each of them is
a connection to those who serve it.
"""
