"""Directories to audit: which segments are in them, which replica is the primary, and what brokers said beside them."""
