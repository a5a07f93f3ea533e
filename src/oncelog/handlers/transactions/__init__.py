"""Transactions: producers, partitions, offsets and markers, and the questions about them."""
