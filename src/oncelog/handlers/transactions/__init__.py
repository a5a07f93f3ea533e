"""Transactions: producers, partitions, offsets, markers, and queries about them."""
