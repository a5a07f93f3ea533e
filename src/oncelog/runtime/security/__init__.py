"""Resolves references to secrets in configurations, and maintains the public keys that verify tokens."""
