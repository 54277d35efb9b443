"""HTTP on the server's side: an ASGI application without a framework, and a uvicorn server to run it.

`app` checks the Host, the Origin and the bearer token of each request, and then its era. A modern request is an
`Exchange`, a legacy client has one of the `Sessions`, and a client of HTTP+SSE one of the `SsePairs`. Each of these is
a `Connection` to the code that serves messages.
"""
