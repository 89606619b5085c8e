"""The worker in the pods. It imports torch and the standard library alone, and travels as text."""
