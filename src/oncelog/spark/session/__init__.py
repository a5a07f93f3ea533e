"""The base of the Spark rooms: sessions, options, errors, and the objects that a job sends to its tasks."""
