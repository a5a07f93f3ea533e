"""Counters, figures for ``/metrics``, the flight recorder and the bounds of the audit log."""
