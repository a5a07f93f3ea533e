"""Shared by handlers: the context of a request, the ports of the broker, waits, and helpers that are no API."""
