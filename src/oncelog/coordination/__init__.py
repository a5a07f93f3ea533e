"""Where cluster facts live: adapters of ``ports.Coordination`` (SQLite embedded, memory for tests and simulation)."""
