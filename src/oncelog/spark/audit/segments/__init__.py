"""Reads one segment: batch headers as columns, and the rows derived from them, the indexes and the internal topics."""
