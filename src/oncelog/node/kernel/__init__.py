"""The basis of every part of a node: events and effects, deadlines, waiting requests, offloaded work."""
