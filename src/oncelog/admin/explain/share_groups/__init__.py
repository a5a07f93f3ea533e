"""Why share groups do not advance (KIP-932): facts, causes in the group and in single records, and reports."""
