"""The client as machines without I/O: bytes and answers in, bytes and decisions out.

The rule: no socket, thread, clock or randomness here. ``now_ms`` is an argument, correlation ids count up from 0.
A broker's bytes are hostile input: lengths are checked before anything is allocated for them.
"""
