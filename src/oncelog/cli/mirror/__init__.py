"""``oncelog mirror``: runs a mirror, translates its offsets, verifies its copies."""
