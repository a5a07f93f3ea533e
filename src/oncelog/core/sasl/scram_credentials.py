"""SCRAM credentials: the keys that a broker stores for a password (RFC 5802), in Apache Kafka's format."""

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
"""Mechanisms by their codes in AlterUserScramCredentials (KIP-554)."""
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


class DamagedCredential(Exception):
    """The message does not contain the credential."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def text(self) -> str:
        """The form that Apache Kafka stores in a user's config."""
        values = (*map(_base64, (self.salt, self.stored_key, self.server_key)), str(self.iterations))
        return ",".join(f"{name}={value}" for name, value in zip(_FIELDS, values, strict=True))


def credential_of_salted(mechanism: str, salt: bytes, salted_password: bytes, iterations: int) -> ScramCredential:
    """The credential for a salted password, as sent by AlterUserScramCredentials."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted_password, b"Server Key", name), iterations)


def credential_of(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """The credential for a password. Takes milliseconds: never call it on the loop."""
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salt, salted, iterations)


def read_credential(mechanism: str, text: str) -> ScramCredential:
    """Parse a credential. Raises DamagedCredential, also for iterations out of bounds."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if tuple(sorted(fields)) != tuple(sorted(_FIELDS)):
        raise DamagedCredential("not the fields of a SCRAM credential")
    try:
        salt, stored_key, server_key = (base64.b64decode(fields[name], validate=True) for name in _FIELDS[:3])
    except (binascii.Error, ValueError):
        raise DamagedCredential("a field of a SCRAM credential is not base64") from None
    size = hashlib.new(HASHES[mechanism]).digest_size
    # A credential of the other mechanism has keys of another size.
    if len(stored_key) != size or len(server_key) != size or not salt:
        raise DamagedCredential(f"a key of a SCRAM credential is not one of {mechanism}")
    digits = fields["iterations"]
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(MAX_ITERATIONS))):
        raise DamagedCredential("the iterations of a SCRAM credential are not a number")
    iterations = int(digits)
    # Fewer than the RFC's minimum are too weak; too many would let a writer of the tree exhaust clients' CPUs.
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise DamagedCredential(f"{iterations} iterations, where {MIN_ITERATIONS} to {MAX_ITERATIONS} are allowed")
    return ScramCredential(salt, stored_key, server_key, iterations)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
