"""The logs of this broker: group commit, high watermarks, delayed fetches, maintenance, the health of the disk."""
