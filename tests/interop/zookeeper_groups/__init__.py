"""Consumers that share their work through ZooKeeper: ours and Java's of 1.0.2 and 0.8.2.2, in one group."""
