"""SCRAM as a client (RFC 5802, 7677): client and server prove that they know the password.

The server's nonce has to begin with ours. Its iteration count is at least 4096, as the RFCs say, and at most a million,
or a hostile server would have us compute for hours. A server signature that does not match is a failure although the
server said "success". No channel binding. The password is used in UTF-8 without SASLprep, as in Apache Kafka.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from enum import Enum
from typing import Final

from oncelog.client.errors import AuthenticationFailed

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 1_000_000
MAX_MESSAGE_BYTES: Final = 4_096
_NO_CHANNEL_BINDING: Final = "n,,"


class _Phase(Enum):
    FIRST = "first"
    FINAL = "final"
    VERIFY = "verify"
    DONE = "done"


class Scram:
    """One exchange: ``first()``, then ``step`` with each message of the server until it returns None."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        self._bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._server_signature = b""
        self._phase = _Phase.FIRST

    def first(self) -> bytes:
        """The client's first message."""
        self._phase = _Phase.FINAL
        return (_NO_CHANNEL_BINDING + self._bare).encode()

    def step(self, message: bytes) -> bytes | None:
        """The next message after one of the server's; None when both sides are satisfied.

        Raises AuthenticationFailed for a malformed answer, or a server that does not know the password.
        """
        if len(message) > MAX_MESSAGE_BYTES:
            raise AuthenticationFailed(f"the server's SCRAM message has {len(message)} bytes")
        if self._phase is _Phase.FINAL:
            self._phase = _Phase.VERIFY
            return self._final(message)
        if self._phase is _Phase.VERIFY:
            self._phase = _Phase.DONE
            self._verify(message)
            return None
        raise AuthenticationFailed("the server goes on after the SCRAM exchange has ended")

    def _final(self, message: bytes) -> bytes:
        fields = _fields(message)
        nonce, iterations = fields.get("r", ""), fields.get("i", "")
        salt = _base64(fields.get("s", ""))
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed("the server's SCRAM nonce does not continue ours")
        if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= len(str(MAX_ITERATIONS))):
            raise AuthenticationFailed("the server's SCRAM iteration count is not a number")
        count = int(iterations)
        if not MIN_ITERATIONS <= count <= MAX_ITERATIONS:
            raise AuthenticationFailed(
                f"the server asks for {count} SCRAM iterations; at least {MIN_ITERATIONS} are required"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, count)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c={base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        signed = b",".join((self._bare.encode(), message, without_proof.encode()))
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        proof = bytes(byte ^ other for byte, other in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, message: bytes) -> None:
        fields = _fields(message)
        if "e" in fields:
            raise AuthenticationFailed(f"SCRAM: {fields['e'][:200]}")
        if not hmac.compare_digest(_base64(fields.get("v", "")), self._server_signature):
            raise AuthenticationFailed("the server does not know the password either: its SCRAM signature is wrong")

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self._hash).digest()


def _fields(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("the server's SCRAM message is not text") from None
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or len(name) != 1 or name in fields or name == "m":
            raise AuthenticationFailed("the server's SCRAM message cannot be understood")
        fields[name] = value
    return fields


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("the server's SCRAM message is not in base64") from None
