"""The partitions of this broker: their logs, group commit, delayed fetches, maintenance."""
