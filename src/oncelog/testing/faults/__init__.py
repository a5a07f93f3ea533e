"""Faults of a broker in a test: ``broker.faults``. See ``control.Faults``."""
