"""Properties files, beside ``java.util.Properties``."""
