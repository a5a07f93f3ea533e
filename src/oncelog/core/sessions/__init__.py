"""What the broker remembers between requests of a client: incremental fetch sessions (KIP-227)."""
