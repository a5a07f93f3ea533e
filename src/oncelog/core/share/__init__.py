"""Share groups (KIP-932): the leader's delivery state of a share partition."""
