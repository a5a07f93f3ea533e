"""Admission of requests: the gate that says who sent one and what it may do, and what the gate asks."""
