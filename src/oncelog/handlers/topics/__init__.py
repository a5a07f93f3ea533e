"""Topics and partitions: creation, deletion, metadata, leaders, reassignment."""
