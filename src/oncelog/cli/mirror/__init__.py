"""``oncelog mirror``: run a mirror, look at its offsets, verify its copies."""
