"""The store of the cluster's metadata: adapters of ``ports.Coordination`` (SQLite; memory for tests, simulation)."""
