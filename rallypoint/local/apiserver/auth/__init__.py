"""Authenticates requests and authorizes them with RBAC."""
