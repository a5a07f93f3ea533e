"""Coordinators of groups and of transactions: shards of internal topics that this broker leads."""
