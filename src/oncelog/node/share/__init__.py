"""Share groups (KIP-932) on this broker: the share partitions that it leads, their state, and their dead letters."""
