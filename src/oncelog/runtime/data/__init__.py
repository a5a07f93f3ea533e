"""Data that a broker has open: its directory with files and coordination tree, audit log and flight recording."""
