"""Rules that all kinds share: when pods are replaced, when a job is out of time or tries, and what is left of it."""
