"""Key stores and trust stores as PEM, from PEM or PKCS12, by file or inline.

PEM is read as Apache Kafka reads it: what stands between the blocks does not matter, nor whether line ends became
blanks in a properties file. JKS, Java's own format, is refused with the command that converts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

from oncelog.node.listeners.broker_settings import StoreUnusable
from oncelog.node.listeners.tls import PEM, StoreSettings

T = TypeVar("T")

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_HEADERS: Final = re.compile(r"(?:^|\n)[A-Za-z-]+:[^\n]*")
_JAVA_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_MAX_STORE_BYTES: Final = 16 * 1024 * 1024
_LINE: Final = 64


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and its certificates, the broker's own first."""

    key: str = field(repr=False)
    chain: tuple[str, ...]
    password: str | None = field(default=None, repr=False)
    """The password of ``key``, where that is encrypted."""


def read_key_store(store: StoreSettings) -> KeyStore:
    """The key and the chain of a key store. Raises StoreUnusable."""
    if store.location is None:
        found = _from_pem(f"{store.key or ''}\n{store.certificates or ''}", "ssl.keystore.key", store.key_password)
    elif store.type == PEM:
        found = _from_pem(_read(store.location).decode("utf-8", "replace"), store.location, store.key_password)
    else:
        password = store.password or ""
        found = KeyStore(*_pkcs12(store, store.location, lambda reader, data: reader.key_and_chain(data, password)))
    return found


def read_trust_store(store: StoreSettings) -> tuple[str, ...]:
    """The certificates that are trusted. Raises StoreUnusable."""
    if store.location is None:
        where, found = "ssl.truststore.certificates", _certificates(store.certificates or "")
    elif store.type == PEM:
        where, found = store.location, _certificates(_read(store.location).decode("utf-8", "replace"))
    else:
        where = store.location
        found = _pkcs12(store, where, lambda reader, data: reader.certificates(data, store.password))
    if not found:
        raise StoreUnusable(f"{where} has no certificate to trust")
    return found


def _read(location: str) -> bytes:
    try:
        with Path(location).open("rb") as file:
            data = file.read(_MAX_STORE_BYTES + 1)
    except OSError as error:
        raise StoreUnusable(f"cannot read {location}: {error.strerror or error}") from None
    if len(data) > _MAX_STORE_BYTES:
        raise StoreUnusable(f"{location} has more than {_MAX_STORE_BYTES} bytes: it is not a key or trust store")
    return data


def _certificates(text: str) -> tuple[str, ...]:
    return tuple(_block(kind, body) for kind, body in _BLOCK.findall(text) if kind.endswith("CERTIFICATE"))


def _from_pem(text: str, where: str, password: str | None) -> KeyStore:
    keys = [_block(kind, body) for kind, body in _BLOCK.findall(text) if kind.endswith("PRIVATE KEY")]
    chain = _certificates(text)
    if len(keys) != 1:
        raise StoreUnusable(f"{where} has {len(keys)} private keys in PEM, one is needed")
    if not chain:
        raise StoreUnusable(f"{where} has no certificate in PEM beside the private key")
    return KeyStore(keys[0], chain, password)


def _block(kind: str, body: str) -> str:
    """A block of PEM in lines, whatever became of them; the headers of old encrypted keys stay."""
    headers = [each.strip() for each in _HEADERS.findall(body)]
    data = "".join(_HEADERS.sub("", body).split())
    lines = [data[start : start + _LINE] for start in range(0, len(data), _LINE)]
    if headers:
        lines = [*headers, "", *lines]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""])


def _pkcs12(store: StoreSettings, location: str, read: Callable[[ModuleType, bytes], T]) -> T:
    """The result of ``read``, given the module for PKCS12 and the bytes of the store. Raises StoreUnusable."""
    data = _read(location)
    if data.startswith(_JAVA_MAGIC):
        raise StoreUnusable(
            f"{location} is a Java key store (JKS), which is not read; convert it: keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {Path(location).with_suffix('.p12')} -deststoretype PKCS12, and "
            "set the type to PKCS12"
        )
    try:
        from oncelog.runtime.tls import pkcs12
    except ModuleNotFoundError as error:
        if error.name != "cryptography":
            raise
        raise StoreUnusable(
            f"{location} is read with cryptography, which is not installed: pip install oncelog[security], or use PEM"
        ) from None
    try:
        return read(pkcs12, data)
    except ValueError as error:
        raise StoreUnusable(f"cannot read {location} as {store.type}: {error}") from None
