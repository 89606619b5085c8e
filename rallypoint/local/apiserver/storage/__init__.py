"""Stores objects in memory and journals them on disk."""
