"""Topics that are created, grown and deleted."""
