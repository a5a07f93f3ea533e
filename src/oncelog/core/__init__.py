"""Pure deterministic machines: no clock, randomness, file, socket, thread or global."""
