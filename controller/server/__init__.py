"""What the service serves: metrics and probes."""
