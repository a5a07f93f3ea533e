"""Listening sockets of every server here: where they are bound, who is accepted, how many descriptors they may take."""
