"""One partition's log over its segments: append, read, validation, what is due and what is not on disk."""
