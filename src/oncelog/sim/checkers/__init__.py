"""Checkers outside the broker: they see histories of clients, the wire and the disk, and know nothing of its inside."""
