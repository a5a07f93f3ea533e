"""Admission of requests: the gate, which identifies the user and decides what a request may do, and its helpers."""
