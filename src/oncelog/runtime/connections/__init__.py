"""Connections of clients: listening sockets, receiving and sending, limits on their number."""
