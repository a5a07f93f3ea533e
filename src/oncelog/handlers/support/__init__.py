"""What handlers share: the context of a request, what they may wait for, and helpers that are no API."""
