"""Listeners as values: their endpoints, their TLS settings, and the principals of certificates."""
