"""What the service tells of itself: metrics and logs."""
