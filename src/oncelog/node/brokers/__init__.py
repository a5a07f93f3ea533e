"""Connections to other brokers, made on demand, and the requests sent over them."""
