"""Records with their transaction states: read, searched, decoded, and written as JSON."""
