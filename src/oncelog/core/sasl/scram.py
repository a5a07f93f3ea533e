"""SCRAM-SHA-256 and -512, the server side (RFC 5802, 7677; KIP-84): a client proves that it knows a password.

1. The last message's nonce is the complete concatenation of the client's and ours (CVE-2024-56128), and its ``c``
   repeats the channel binding of the first message.
2. A name without a credential is treated alike up to the proof (``unknown_users``).
3. Mandatory extensions and delegation tokens (``tokenauth``) are refused; other extensions are ignored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from enum import Enum
from typing import Final

from oncelog.core.sasl.exchange import Login, LoginRefused, Step, sasl_name, text_of
from oncelog.core.sasl.scram_credentials import HASHES, ScramCredential

MAX_MESSAGE_BYTES: Final = 16384
"""Names and nonces have tens of characters, and the answer repeats the nonce."""
_EXTENSION: Final = "tokenauth"


class _State(Enum):
    # ``n,,n=user,r=nonce`` is answered ``r=…,s=salt,i=iterations``: FINAL.
    FIRST = "first"
    # ``c=biws,r=both nonces,p=proof`` is answered ``v=signature``: DONE.
    FINAL = "final"
    # No message is accepted.
    DONE = "done"


class ScramServer:
    """One exchange. ``credential_of`` has a credential for every name; ``nonce`` is the server's, for one use."""

    def __init__(self, mechanism: str, credential_of: Callable[[str], ScramCredential], nonce: str) -> None:
        self._hash = HASHES[mechanism]
        self._credential_of = credential_of
        self._server_nonce = nonce
        self._state = _State.FIRST
        self._user = ""
        self._binding = ""
        self._nonce = ""
        self._signed_first = b""
        self._credential: ScramCredential | None = None

    def step(self, message: bytes, now_ms: int) -> Step:
        """Implements :class:`oncelog.core.sasl.exchange.Exchange`."""
        # Done in advance: any exception ends the exchange.
        state, self._state = self._state, _State.DONE
        if len(message) > MAX_MESSAGE_BYTES:
            raise LoginRefused(f"a SCRAM message of {len(message)} bytes, the maximum is {MAX_MESSAGE_BYTES}")
        if state is _State.FIRST:
            answer = self._first(text_of(message))
            self._state = _State.FINAL
            return Step(answer)
        if state is _State.FINAL:
            return Step(self._final(text_of(message)), Login(self._user))
        raise LoginRefused("a message after the exchange")

    def _first(self, message: str) -> bytes:
        binding, authorization_id, bare = _split_header(message)
        names = bare.split(",")
        if len(names) < 2:
            raise LoginRefused("the first SCRAM message has no name or no nonce")
        user, nonce = sasl_name(_value("n", names[0])), _value("r", names[1])
        _refuse_extensions(names[2:])
        if not user or not nonce or not _is_printable(nonce):
            raise LoginRefused("the first SCRAM message has no name or no nonce")
        if authorization_id and authorization_id != user:
            raise LoginRefused.saying(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._user, self._binding = user, base64.b64encode(binding.encode()).decode()
        self._credential = credential = self._credential_of(user)
        self._nonce = nonce + self._server_nonce
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}".encode()
        self._signed_first = bare.encode() + b"," + answer
        return answer

    def _final(self, message: str) -> bytes:
        assert self._credential is not None
        without_proof, _, last = message.rpartition(",")
        parts = without_proof.split(",")
        if len(parts) < 2 or _value("c", parts[0]) != self._binding:
            raise LoginRefused("the last SCRAM message has another channel binding")
        # Rule 1.
        if not hmac.compare_digest(_value("r", parts[1]).encode(), self._nonce.encode()):
            raise LoginRefused("the last SCRAM message has another nonce")
        _refuse_extensions(parts[2:])
        signed = self._signed_first + b"," + without_proof.encode()
        signature = hmac.digest(self._credential.stored_key, signed, self._hash)
        proof = _proof(_value("p", last), len(signature))
        client_key = bytes(byte ^ mask for byte, mask in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), self._credential.stored_key):
            raise LoginRefused("the proof is wrong")
        return b"v=" + base64.b64encode(hmac.digest(self._credential.server_key, signed, self._hash))


def _split_header(message: str) -> tuple[str, str, str]:
    """The GS2 header, its authorization id, and the rest of the message. Channel binding is not supported."""
    flag, first, rest = message.partition(",")
    identity, second, bare = rest.partition(",")
    if flag not in ("n", "y") or not first or not second:
        raise LoginRefused("the first SCRAM message has no header without channel binding")
    authorization_id = sasl_name(_value("a", identity)) if identity else ""
    return f"{flag},{identity},", authorization_id, bare


def _value(name: str, part: str) -> str:
    key, equals, value = part.partition("=")
    if key != name or not equals:
        raise LoginRefused(f"a SCRAM message lacks {name}= at its place")
    return value


def _refuse_extensions(parts: list[str]) -> None:
    for part in parts:
        name, equals, value = part.partition("=")
        if not (equals and name.isascii() and name.isalpha() and value):
            raise LoginRefused("a SCRAM message has a malformed extension")
        if name == "m" or (name == _EXTENSION and value.lower() == "true"):
            raise LoginRefused(f"the SCRAM extension {name} is not supported")


def _is_printable(nonce: str) -> bool:
    return all("!" <= character <= "~" for character in nonce)


def _proof(text: str, size: int) -> bytes:
    try:
        proof = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise LoginRefused("the proof is not base64") from None
    if len(proof) != size or base64.b64encode(proof).decode() != text:
        raise LoginRefused("the proof has another length, or bits beyond its end")
    return proof
