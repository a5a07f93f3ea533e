"""References in configurations to secrets, and the public keys that verify tokens."""
