"""The tree in ZooKeeper, through kazoo."""
