"""HTTP on the server's side: an ASGI application without a framework, and a uvicorn server to run it.

`asgi_app` checks the Host, the Origin and the bearer token of each request, and then its era. A modern request is
served as a `ModernPost`, a legacy client as one of the `LegacySessions`, a client of HTTP+SSE as one of the
`SseSessions`. Each of these is a `Connection`.
"""
