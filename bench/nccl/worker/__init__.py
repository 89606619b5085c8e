"""What runs in the pods. It imports torch and the standard library alone, and is shipped there as text."""
