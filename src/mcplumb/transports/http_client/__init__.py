"""The client's side of HTTP, on aiohttp: one server is one connection, whatever number of requests that takes.

A `HttpConnection` queues what is sent, and has each message posted by a *binding*, which knows one way to speak to a
server: `modern`, `legacy` or `sse`. All of them go through one `pool`, and what comes back, by `responses` and
`streams`, goes into one `inbox`.
"""
