"""What a partition knows of its idempotent and transactional producers: pure, no files, no clock (KIP-98, KIP-360)."""
