"""Logs of replicas: offsets, epochs, directories, and deletion of records."""
