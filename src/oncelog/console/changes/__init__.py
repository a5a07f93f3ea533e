"""Everything that changes a cluster, with its lines in the audit; no other room may import what does."""
