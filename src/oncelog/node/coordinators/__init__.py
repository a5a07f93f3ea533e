"""Coordinators of groups and of transactions: the shards of internal topics that this broker leads."""
