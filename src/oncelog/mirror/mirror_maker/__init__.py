"""Judges the offset translation of MirrorMaker 2, from its internal topics and the records on both sides."""
