"""Basis of every part of a node: events and effects, deadlines, waiting requests, work for workers."""
