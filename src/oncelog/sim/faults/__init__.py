"""Faults: what goes wrong in a simulation, by name, and plans of them as values and as text."""
