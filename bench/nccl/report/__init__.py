"""Records for people: tables for a terminal, and a page with charts."""
