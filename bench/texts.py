"""The values of the topics that Spark reads, and of the source that reads nothing."""

from __future__ import annotations

import os
from typing import Final

DIFFERENT: Final = 1000
"""Values that differ; a topic has them again and again, in this order."""


def texts(size: int) -> list[bytes]:
    """All values of a size: JSON-like text, whose fields come again within a value that is longer than they are."""
    return [_text(size, number) for number in range(DIFFERENT)]


def _text(size: int, number: int) -> bytes:
    fields = (
        f'{{"id":{number:05d},"user":"{os.urandom(6).hex()}","page":"/products/{number % 97}","ms":{number % 613}}}'
    )
    return (fields * (size // len(fields) + 1)).encode()[:size]
