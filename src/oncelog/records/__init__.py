"""Record batches, format v2: lazy views over bytes, their records, and how both are built (KIP-98)."""
