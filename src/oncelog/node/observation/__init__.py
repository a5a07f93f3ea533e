"""Observations of a running node for operators: the flight recorder, and metrics of transactions."""
