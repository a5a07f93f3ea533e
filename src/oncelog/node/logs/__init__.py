"""This broker's logs: group commit, high watermarks, delayed fetches, maintenance, and the disk's health."""
