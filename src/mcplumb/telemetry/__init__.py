"""Layer 4: observability: metrics for Prometheus, and traces and metrics for OpenTelemetry.

Nothing here is loaded unless it was asked for.
"""
