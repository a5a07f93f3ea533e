"""Listening sockets of every server here: binding, accepting, and the file descriptors that connections may take."""
