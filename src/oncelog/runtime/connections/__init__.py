"""Connections of clients: listening sockets, what is received and sent, how many there may be."""
