"""Replicas' logs: offsets, epochs, directories, and removal of records."""
