"""Several brokers inside a test: ``with Cluster(3) as cluster: … cluster.kill(1)``. See ``cluster``."""
