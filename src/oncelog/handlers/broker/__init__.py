"""The broker as its handlers see it: ports, request context, waits, leaders, limits."""
