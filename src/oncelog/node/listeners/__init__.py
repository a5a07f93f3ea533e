"""Listeners as values: which there are, what the TLS of each needs, and whom a certificate names."""
