"""The tree in one SQLite database of the host."""
