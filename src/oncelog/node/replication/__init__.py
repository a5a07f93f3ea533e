"""Replication between brokers: followers' fetches, and the in-sync sets that their leaders keep."""
