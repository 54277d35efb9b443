"""HTTP on the client's side, with aiohttp: one server is one `HttpConnection`, however many HTTP requests that takes.

The connection puts each message into the `PostQueue`, which limits the number of concurrent POSTs. A `Binding` posts
it: Streamable HTTP of the modern era, of the legacy era, or HTTP+SSE. All HTTP requests go through one
`ConnectionPool`; the messages in all responses go through one `Inbox` to the connection's receiver.
"""
