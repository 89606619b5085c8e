"""Metrics and logs of the service."""
