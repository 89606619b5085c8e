"""Checks of an installation, and of what an administrator is about to do with it."""
