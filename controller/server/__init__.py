"""The HTTP endpoints of the service: metrics and health probes."""
