"""Workloads: programs over production clients that write down what they did and saw."""
