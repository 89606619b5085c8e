"""The control loops that the server runs itself: garbage collection and event expiry."""
