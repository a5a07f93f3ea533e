"""Certificates for tests, made in memory (trustme): authorities, brokers, clients, and those that nobody should take.

A key takes a millisecond to make (elliptic curves), so that every test has its own. :class:`Authority` gives what a
listener's keys need, inline, and what each client library wants to be told.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOSTS: Final = ("localhost", "127.0.0.1", "::1")
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificates, in PEM."""

    key: str
    chain: str

    @property
    def pem(self) -> str:
        """Both, as a PEM key store has them."""
        return self.key + self.chain

    @property
    def der(self) -> bytes:
        """The first certificate."""
        return ssl.PEM_cert_to_DER_cert(self.chain)

    def write(self, directory: Path, name: str = "identity") -> Path:
        """The file of both."""
        path = directory / f"{name}.pem"
        path.write_text(self.pem)
        return path


class Authority:
    """A private certificate authority."""

    def __init__(self, organization: str = "Acme, Inc.") -> None:
        self._ca = trustme.CA(organization_name=organization)
        self.pem = self._ca.cert_pem.bytes().decode()

    def broker(self, *hosts: str) -> Identity:
        """Of a broker at these hosts: for both sides of a connection, since brokers connect to each other."""
        return _identity(self._ca.issue_cert(*(hosts or HOSTS), common_name="broker"))

    def client(self, common_name: str = "alice", organization: str = "Acme, Inc.") -> Identity:
        """Of a client."""
        cert = self._ca.issue_cert(
            f"{common_name}@acme.example", common_name=common_name, organization_name=organization
        )
        return _identity(cert)

    def expired(self, *hosts: str) -> Identity:
        """One that ended a day ago."""
        yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        begun = yesterday - datetime.timedelta(days=1)
        return _identity(self._ca.issue_cert(*(hosts or HOSTS), not_before=begun, not_after=yesterday))

    def ending(self, left: datetime.timedelta) -> Identity:
        """A broker's that ends soon."""
        return _identity(self._ca.issue_cert(*HOSTS, not_after=datetime.datetime.now(datetime.UTC) + left))

    def server_only(self) -> Identity:
        """One that is not for clients."""
        return self._signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")]), [SERVER])

    def named(self, name: x509.Name) -> Identity:
        """A client's with a name of any kind."""
        return self._signed(name, [CLIENT])

    def _signed(self, name: x509.Name, usage: list[x509.ObjectIdentifier]) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.load_pem_x509_certificate(self.pem.encode())
        signer = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(
            issuer_name=issuer.subject,
            subject_name=name,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - datetime.timedelta(days=1),
            not_valid_after=now + datetime.timedelta(days=1),
        ).add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        certificate = builder.sign(signer, hashes.SHA256())
        return Identity(_pem_of(key), certificate.public_bytes(serialization.Encoding.PEM).decode())

    def listener(self, identity: Identity | None = None, **keys: str) -> dict[str, str]:
        """Keys of a TLS listener whose certificate is ``identity``, inline; ``keys`` with ``_`` for the dots."""
        identity = identity or self.broker()
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": identity.key,
            "ssl.keystore.certificate.chain": identity.chain,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": self.pem,
            **{key.replace("_", "."): text for key, text in keys.items()},
        }

    def librdkafka(self, identity: Identity | None = None) -> dict[str, str]:
        """Settings by which librdkafka trusts this authority, and shows a client's certificate."""
        told = {"security.protocol": "SSL", "ssl.ca.pem": self.pem}
        if identity is not None:
            told |= {"ssl.key.pem": identity.key, "ssl.certificate.pem": identity.chain}
        return told

    def java(self, identity: Identity | None = None) -> Mapping[str, str]:
        """The same for Java's clients."""
        told = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.pem}
        if identity is not None:
            told |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": identity.key}
            told |= {"ssl.keystore.certificate.chain": identity.chain}
        return told

    def context(self, identity: Identity | None = None, directory: Path | None = None) -> ssl.SSLContext:
        """A client's context of Python; a certificate to show has to be written to a directory."""
        context = ssl.create_default_context(cadata=self.pem)
        if identity is not None:
            assert directory is not None
            context.load_cert_chain(identity.write(directory, f"client-{id(identity)}"))
        return context


def self_signed(common_name: str = "alice") -> Identity:
    """A client's certificate that nobody has signed but its own key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer_name=name,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(days=1),
        not_valid_after=now + datetime.timedelta(days=1),
    )
    certificate = builder.sign(key, hashes.SHA256())
    return Identity(_pem_of(key), certificate.public_bytes(serialization.Encoding.PEM).decode())


def _identity(cert: trustme.LeafCert) -> Identity:
    chain = "".join(pem.bytes().decode() for pem in cert.cert_chain_pems)
    key = serialization.load_pem_private_key(cert.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return Identity(_pem_of(key), chain)


def _pem_of(key: ec.EllipticCurvePrivateKey) -> str:
    """PKCS8, which Java reads, too."""
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, form, serialization.NoEncryption()).decode()
