"""SCRAM credentials: the keys that a broker has of a password (RFC 5802), as Apache Kafka writes them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

from oncelog.core.sasl.exchange import SCRAM_SHA_256, SCRAM_SHA_512

HASHES: Final = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
CODES: Final = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
"""The mechanisms by their codes in AlterUserScramCredentials (KIP-554)."""
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


class DamagedCredential(Exception):
    """A text is no SCRAM credential, or one that must not be used; the message does not hold it."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The keys that tell if a client knows a password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def text(self) -> str:
        """The credential as Apache Kafka keeps it in the config of a user."""
        values = (*map(_base64, (self.salt, self.stored_key, self.server_key)), str(self.iterations))
        return ",".join(f"{name}={value}" for name, value in zip(_FIELDS, values, strict=True))


def credential_of_salted(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """The credential for a password that its owner has salted, as AlterUserScramCredentials brings it."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted_password, b"Server Key", name), iterations)


def credential_of(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """The credential for a password. Takes milliseconds: never on the loop."""
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salt, salted, iterations)


def read_credential(mechanism: str, text: str) -> ScramCredential:
    """The credential that ``text`` holds. Raises DamagedCredential, for iterations out of bounds, too: fewer than the
    RFC's are too weak, more than anybody may set would let one who can write the tree keep clients computing."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if tuple(sorted(fields)) != tuple(sorted(_FIELDS)):
        raise DamagedCredential("not the fields of a SCRAM credential")
    try:
        salt, stored_key, server_key = (base64.b64decode(fields[name], validate=True) for name in _FIELDS[:3])
    except (binascii.Error, ValueError):
        raise DamagedCredential("a field of a SCRAM credential is not base64") from None
    size = hashlib.new(HASHES[mechanism]).digest_size
    if len(stored_key) != size or len(server_key) != size or not salt:
        raise DamagedCredential(f"a key of a SCRAM credential is not one of {mechanism}")
    digits = fields["iterations"]
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(MAX_ITERATIONS))):
        raise DamagedCredential("the iterations of a SCRAM credential are not a number")
    iterations = int(digits)
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise DamagedCredential(f"{iterations} iterations, where {MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed")
    return ScramCredential(salt, stored_key, server_key, iterations)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
