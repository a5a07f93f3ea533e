"""SSL contexts from a listener's settings: the server's, and the client's for the same listener of other brokers.

Stores are PEM or PKCS12, in files or inline. PEM is read as by Apache Kafka: text between blocks is ignored, and line
ends may have become blanks in a properties file. JKS is refused with the command that converts it.

Private keys are not written to disk again where the system has files in memory. TLS 1.3 sessions are not resumed; TLS
1.2 sessions may be, for at most two hours and only with the contexts they began with.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

from oncelog.node.listeners.broker_settings import StoreUnusable
from oncelog.node.listeners.certificates import read_certificate
from oncelog.node.listeners.tls import PEM, StoreSettings, TlsSettings

T = TypeVar("T")

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_HEADERS: Final = re.compile(r"(?:^|\n)[A-Za-z-]+:[^\n]*")
_JAVA_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_MAX_STORE_BYTES: Final = 16 * 1024 * 1024
_LINE: Final = 64


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and its certificate chain, the broker's own first."""

    key: str = field(repr=False)
    chain: tuple[str, ...]
    password: str | None = field(default=None, repr=False)
    """The password of an encrypted ``key``."""


def read_key_store(store: StoreSettings) -> KeyStore:
    """Read a key store. Raises StoreUnusable."""
    if store.location is None:
        key_store = _from_pem(f"{store.key or ''}\n{store.certificates or ''}", "ssl.keystore.key", store.key_password)
    elif store.type == PEM:
        key_store = _from_pem(_read(store.location).decode("utf-8", "replace"), store.location, store.key_password)
    else:
        password = store.password or ""
        key_store = KeyStore(*_pkcs12(store, store.location, lambda reader, data: reader.key_and_chain(data, password)))
    return key_store


def read_trust_store(store: StoreSettings) -> tuple[str, ...]:
    """Read the trusted certificates. Raises StoreUnusable."""
    if store.location is None:
        source, certificates = "ssl.truststore.certificates", _certificates(store.certificates or "")
    elif store.type == PEM:
        source, certificates = store.location, _certificates(_read(store.location).decode("utf-8", "replace"))
    else:
        source = store.location
        certificates = _pkcs12(store, source, lambda reader, data: reader.certificates(data, store.password))
    if not certificates:
        raise StoreUnusable(f"{source} has no certificate to trust")
    return certificates


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


def _from_pem(text: str, source: str, password: str | None) -> KeyStore:
    keys = [_block(kind, body) for kind, body in _BLOCK.findall(text) if kind.endswith("PRIVATE KEY")]
    chain = _certificates(text)
    if len(keys) != 1:
        raise StoreUnusable(f"{source} has {len(keys)} private keys in PEM, one is needed")
    if not chain:
        raise StoreUnusable(f"{source} has no certificate in PEM beside the private key")
    return KeyStore(keys[0], chain, password)


def _block(kind: str, body: str) -> str:
    """A PEM block with its lines restored; keeps the headers of old encrypted keys."""
    headers = [header.strip() for header in _HEADERS.findall(body)]
    data = "".join(_HEADERS.sub("", body).split())
    lines = [data[start : start + _LINE] for start in range(0, len(data), _LINE)]
    if headers:
        lines = [*headers, "", *lines]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""])


def _pkcs12(store: StoreSettings, location: str, read: Callable[[ModuleType, bytes], T]) -> T:
    """The result of ``read``, called with the PKCS12 module and the bytes of the store. Raises StoreUnusable."""
    data = _read(location)
    if data.startswith(_JAVA_MAGIC):
        raise StoreUnusable(
            f"{location} is a Java key store (JKS), which is not supported; convert it: keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {Path(location).with_suffix('.p12')} -deststoretype PKCS12, and "
            "set the type to PKCS12"
        )
    try:
        from oncelog.runtime.tls import pkcs12
    except ModuleNotFoundError as error:
        if error.name != "cryptography":
            raise
        raise StoreUnusable(
            f"reading {location} needs cryptography, not installed: pip install 'oncelog[security]', or use PEM"
        ) from None
    try:
        return read(pkcs12, data)
    except ValueError as error:
        raise StoreUnusable(f"cannot read {location} as {store.type}: {error}") from None


_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_SUITES_OF_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


@dataclass(frozen=True, slots=True)
class Contexts:
    server: ssl.SSLContext
    client: ssl.SSLContext
    not_after_s: int
    """Expiry of the broker's certificate, in seconds since 1970."""


def make_contexts(settings: TlsSettings) -> Contexts:
    if not settings.key_store.is_given:
        raise StoreUnusable(
            "TLS needs a certificate: set ssl.keystore.type=PEM with ssl.keystore.location, or with ssl.keystore.key "
            "and ssl.keystore.certificate.chain"
        )
    keys = read_key_store(settings.key_store)
    trusted = read_trust_store(settings.trust_store) if settings.trust_store.is_given else None
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (server, client):
        _limit(context, settings)
        _load_keys(context, keys)
        _trust(context, trusted, server=context is server)
    server.verify_mode = _CLIENT_AUTH[settings.client_auth]
    # No TLS 1.3 resumption: every handshake verifies the certificates.
    server.num_tickets = 0
    client.check_hostname = settings.check_host_name
    ends_s = read_certificate(ssl.PEM_cert_to_DER_cert(keys.chain[0])).not_after_s
    return Contexts(server, client, ends_s)


def make_client_context(settings: TlsSettings) -> ssl.SSLContext:
    """A context for connections to servers that are not brokers, with a client certificate if configured. Raises
    StoreUnusable.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _limit(context, settings)
    if settings.key_store.is_given:
        _load_keys(context, read_key_store(settings.key_store))
    _trust(context, read_trust_store(settings.trust_store) if settings.trust_store.is_given else None, server=False)
    context.check_hostname = settings.check_host_name
    return context


def _limit(context: ssl.SSLContext, settings: TlsSettings) -> None:
    versions, suites = settings.versions, settings.cipher_suites
    of_1_3 = [suite for suite in suites if suite in _SUITES_OF_1_3]
    of_1_2 = [_openssl_name(suite) for suite in suites if suite not in _SUITES_OF_1_3]
    if suites:
        versions = tuple(version for version in versions if (of_1_3 if version == "TLSv1.3" else of_1_2))
        if not versions:
            raise StoreUnusable(
                "ssl.cipher.suites has no suite for the versions in ssl.enabled.protocols: add one, or leave it out"
            )
        if of_1_3 and len(of_1_3) < len(_SUITES_OF_1_3):
            raise StoreUnusable(
                f"ssl.cipher.suites names {', '.join(of_1_3)}: TLS 1.3 suites cannot be chosen; name all three "
                f"({', '.join(_SUITES_OF_1_3)}), or none to have TLS 1.2 only"
            )
    context.minimum_version, context.maximum_version = _VERSIONS[versions[0]], _VERSIONS[versions[-1]]
    # Renegotiation lets a client consume processor time at no cost to itself.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if of_1_2:
        try:
            context.set_ciphers(":".join(of_1_2))
        except ssl.SSLError:
            raise StoreUnusable(f"ssl.cipher.suites: OpenSSL does not have {', '.join(suites)}") from None


def _openssl_name(suite: str) -> str:
    """OpenSSL's name of a TLS 1.2 suite: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    exchange, separator, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return suite  # already an OpenSSL name
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").removesuffix("_CBC_SHA256")
    name = cipher.replace("_CBC", "").replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305")
    return "-".join([*([] if exchange == "RSA" else [exchange]), name]).replace("_", "-")


def _load_keys(context: ssl.SSLContext, keys: KeyStore) -> None:
    with _readable(f"{keys.key}\n{''.join(keys.chain)}".encode()) as path:
        try:
            # Without a password OpenSSL would prompt for it on the terminal, hence the empty one.
            context.load_cert_chain(path, password=keys.password or "")
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error)
            raise StoreUnusable(f"the key store's key and certificate cannot be used: {reason}") from None


def _trust(context: ssl.SSLContext, trusted: tuple[str, ...] | None, *, server: bool) -> None:
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a trusted certificate need not be a root, as in Java
    if trusted is None:
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH)
        return
    try:
        context.load_verify_locations(cadata="".join(trusted))
    except (ssl.SSLError, ValueError) as error:
        raise StoreUnusable(f"the trust store's certificates cannot be used: {error}") from None


@contextmanager
def _readable(data: bytes) -> Iterator[str]:
    """A path under which this process can read ``data`` during the block."""
    # OpenSSL reads private keys only by file name.
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile  # only needed on systems without memfd

    with tempfile.NamedTemporaryFile() as file:  # of mode 0600
        file.write(data)
        file.flush()
        yield file.name
