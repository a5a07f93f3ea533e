"""All changes to a cluster, each with its lines in the audit log; no other room may import functions that make
changes."""
