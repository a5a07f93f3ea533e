"""Salts of SCRAM credentials, in the form that Apache Kafka's tools give them: whoever has no credential is answered
with such a one, so real ones must not look otherwise.
"""

from __future__ import annotations

from typing import Final

SALT_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def salt_text(number: int) -> bytes:
    """The salt for a random number of ``SALT_BITS`` bits: in base 36."""
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.encode() or b"0"
