"""The state of idempotent and transactional producers on a partition: pure, no files, no clock (KIP-98, KIP-360)."""
