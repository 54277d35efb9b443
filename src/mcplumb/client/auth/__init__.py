"""Signing in to protected servers: what a client brings, who drives the flows, and where the redirect arrives."""
