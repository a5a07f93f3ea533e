"""Text helpers for messages: numbers with their nouns, and peers' names cut to a length."""

from __future__ import annotations

from typing import Final

_DIGEST_BYTES: Final = 12


def shortened(name: str, length: int) -> str:
    """The name, or its beginning and a digest if it is longer than ``length`` characters: long names stay distinct."""
    if len(name) <= length:
        return name
    from hashlib import blake2b  # not needed to start a broker

    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{name[: length - len(digest) - 1]}…{digest}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 row``, ``2,500 rows``; ``plural`` is for nouns that do not take an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
