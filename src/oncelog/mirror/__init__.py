"""Mirrors topics of other clusters into one, exactly once, together with their groups (docs/mirror.md)."""
