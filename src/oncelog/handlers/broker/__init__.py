"""The broker as its handlers see it: ports, the context of a request, waits, leadership, limits."""
