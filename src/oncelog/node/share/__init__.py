"""Share groups on this broker: the state of share partitions, their fetches and acknowledgements (KIP-932)."""
