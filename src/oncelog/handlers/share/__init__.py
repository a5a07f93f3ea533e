"""Share groups (KIP-932): records fetched, acknowledged and released one by one by the members of a group."""
