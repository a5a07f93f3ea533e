"""Mirrors: the topics of other clusters copied into one, exactly once, with their groups (docs/mirror.md)."""
