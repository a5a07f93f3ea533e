"""Numbers with their nouns, for messages that people read."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 row``, ``2,500 rows``; ``plural`` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
