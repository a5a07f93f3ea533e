"""Numbers with their nouns, for messages that people read; and names of peers, cut to a length."""

from __future__ import annotations

from typing import Final

_DIGEST_BYTES: Final = 12


def shortened(name: str, length: int) -> str:
    """A name of at most ``length`` characters: itself, or its beginning and a digest of the whole, so that long names
    stay distinct."""
    if len(name) <= length:
        return name
    from hashlib import blake2b  # a broker starts without it

    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{name[: length - len(digest) - 1]}…{digest}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 row``, ``2,500 rows``; ``plural`` where it is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
