"""Records for people: tables for a terminal, plots for a page or a picture."""
