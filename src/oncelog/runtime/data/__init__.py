"""A broker's open data: its directory with files and coordination tree, audit log and flight recording."""
