"""A broker as a deterministic state machine: event + now_ms → effects. No I/O, no clock, no randomness of its own."""
