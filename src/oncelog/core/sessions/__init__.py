"""Incremental fetch sessions, kept between the requests of a client (KIP-227)."""
