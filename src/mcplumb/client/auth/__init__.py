"""Signing in to protected servers: the ways to be authorized, the driver of their flows, and the redirect listener."""
