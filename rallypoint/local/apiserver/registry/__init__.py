"""Creates, reads, updates, patches and deletes objects, independent of HTTP."""
