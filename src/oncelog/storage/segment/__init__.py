"""One segment: its file, its indexes, and walking over its batches."""
