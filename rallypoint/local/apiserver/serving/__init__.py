"""Serves the API over HTTP: handlers, watches, discovery, serialization and certificates."""
