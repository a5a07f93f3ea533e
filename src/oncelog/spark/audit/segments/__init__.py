"""A segment's batch headers as columns, and the rows that follow from them, the indexes and the internal topics."""
