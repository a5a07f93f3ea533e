"""The parts of the container image that need neither apt nor a network."""
