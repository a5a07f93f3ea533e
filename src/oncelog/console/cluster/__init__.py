"""The cluster behind the console: its clients, and answers of a moment ago."""
