"""One partition's log over its segments: append, read, validation, truncation, rolling, unsynced files."""
