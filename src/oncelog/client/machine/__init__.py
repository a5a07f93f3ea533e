"""The client as state machines without I/O: bytes and responses in, bytes and decisions out.

No socket, thread, clock or randomness: ``now_ms`` is an argument, correlation ids count up from 0. A broker's bytes are
hostile input: lengths are checked before memory is allocated for them.
"""
