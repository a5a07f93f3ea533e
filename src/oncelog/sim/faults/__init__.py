"""Faults of a simulation by name, and plans of faults as values and as text."""
