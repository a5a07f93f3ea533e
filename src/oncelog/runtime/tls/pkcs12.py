"""Reads PKCS12 stores with ``cryptography``, which only this module imports for TLS, when such a store is read."""

from __future__ import annotations

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12
from cryptography.x509 import Certificate


def key_and_chain(data: bytes, password: str) -> tuple[str, tuple[str, ...]]:
    """The private key and its certificate chain, the broker's own first, as PEM. Raises ValueError."""
    store = _load(data, password)
    if store.key is None or store.cert is None:
        raise ValueError("it has no private key with a certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    chain = _in_order(store.cert.certificate, [additional.certificate for additional in store.additional_certs])
    return key, tuple(map(_pem, chain))


def certificates(data: bytes, password: str | None) -> tuple[str, ...]:
    """All certificates, as PEM. Raises ValueError."""
    store = _load(data, password)
    own = [] if store.cert is None else [store.cert]
    return tuple(_pem(additional.certificate) for additional in (*own, *store.additional_certs))


def _load(data: bytes, password: str | None) -> PKCS12KeyAndCertificates:
    return load_pkcs12(data, None if password is None else password.encode())


def _pem(certificate: Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _in_order(own: Certificate, others: list[Certificate]) -> list[Certificate]:
    """A certificate chain in order: each certificate is followed by its issuer's, as far as available."""
    chain, remaining = [own], list(others)
    while issuers := [other for other in remaining if other.subject == chain[-1].issuer]:
        chain.append(issuers[0])
        remaining.remove(issuers[0])
    return chain
