"""Replication between brokers: followers' fetches, and the in-sync sets that leaders maintain."""
