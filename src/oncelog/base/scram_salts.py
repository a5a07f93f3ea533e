"""Salts of SCRAM credentials, in the form of Apache Kafka's tools: a user without a credential gets a salt of the same
form, so that the two cannot be told apart.
"""

from __future__ import annotations

from typing import Final

SALT_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def salt_text(number: int) -> bytes:
    """A random number of ``SALT_BITS`` bits in base 36."""
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.encode() or b"0"
