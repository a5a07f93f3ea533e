"""One segment: its file, its indexes, and iteration over its batches."""
