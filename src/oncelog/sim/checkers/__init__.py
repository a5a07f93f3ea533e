"""Checkers of a run: they read client histories, the wire and the disks, and know nothing of the broker's internals."""
