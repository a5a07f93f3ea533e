"""Clusters of real processes under fire; `python -m tests.cluster` are the long ones."""
