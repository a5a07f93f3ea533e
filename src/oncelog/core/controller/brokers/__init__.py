"""Brokers that join the cluster, and the features and the format of the tree that they agree on."""
