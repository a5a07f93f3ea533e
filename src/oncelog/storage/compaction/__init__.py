"""Compaction: keep the last value of every key (``cleanup.policy=compact``); as jobs over sealed segments."""
