"""A member of a share group as state machines (KIP-932): membership, sessions with leaders, locks, records."""
