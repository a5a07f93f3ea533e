"""Where replicas are, who is in sync, who leads: elections, reassignments, placement."""
