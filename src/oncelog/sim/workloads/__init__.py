"""Workloads: programs on production clients that record their actions and observations."""
