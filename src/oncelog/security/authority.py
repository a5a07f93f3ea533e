"""A private certificate authority that signs certificates of brokers and clients. Needs ``oncelog[security]``.

Certificates satisfy strict verifiers, OpenSSL's strict mode and Java's PKIX (X.509 v3, both key identifiers, basic
constraints, usages). A broker's certificate is valid for both sides of a connection; a client's is not valid for
servers, so that no client can pose as a broker.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFETIME: Final = datetime.timedelta(days=3650)
LIFETIME: Final = datetime.timedelta(days=397)
"""Validity of a broker's or a client's certificate: the maximum of public authorities."""
# Certificates become valid this much earlier, because clocks differ.
_CLOCK_SKEW: Final = datetime.timedelta(minutes=5)


class NotAnAuthority(ValueError):
    """The certificate and the key are not an authority's; the message says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificate, in PEM."""

    key: str = field(repr=False)
    certificate: str

    @property
    def pem(self) -> str:
        """Both in one text, the format of a PEM key store."""
        return self.key + self.certificate


class Authority:
    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key
        self.pem = certificate.public_bytes(Encoding.PEM).decode()
        """The authority's certificate, for those who should trust it."""

    @classmethod
    def create(cls, common_name: str, now: datetime.datetime | None = None) -> Authority:
        """Valid for ten years."""
        # P-256 is fast to make, and every client supports it.
        key = ec.generate_private_key(ec.SECP256R1())
        begins = (now or _now()) - _CLOCK_SKEW
        name = _name(common_name)
        builder = _builder(name, name, key.public_key(), begins, begins + CA_LIFETIME)
        # It signs brokers and clients, but no further authorities.
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate: str, key: str) -> Authority:
        """The authority with this certificate and key in PEM. Raises NotAnAuthority."""
        try:
            loaded_certificate = x509.load_pem_x509_certificate(certificate.encode())
            private_key = load_pem_private_key(key.encode(), None)
        except (ValueError, TypeError):
            raise NotAnAuthority("they are not a certificate and an unencrypted key in PEM") from None
        if (
            not isinstance(private_key, ec.EllipticCurvePrivateKey)
            or private_key.public_key() != loaded_certificate.public_key()
        ):
            raise NotAnAuthority("the key does not belong to the certificate")
        return cls(loaded_certificate, private_key)

    @property
    def key_pem(self) -> str:
        """The authority's private key in PEM. Its holder can pose as anyone."""
        return _key_pem(self._key)

    def broker(
        self,
        hosts: Sequence[str],
        common_name: str = "broker",
        *,
        lifetime: datetime.timedelta = LIFETIME,
        begins: datetime.datetime | None = None,
    ) -> Identity:
        """Issue a certificate for a broker that clients reach by these names and addresses."""
        if not hosts:
            raise ValueError("a broker's certificate needs the names or addresses at which clients reach it")
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(common_name, usages, [_general_name(host) for host in hosts], lifetime, begins)

    def client(
        self,
        common_name: str,
        *,
        lifetime: datetime.timedelta = LIFETIME,
        begins: datetime.datetime | None = None,
    ) -> Identity:
        """Issue a certificate that identifies a client as ``CN=common_name``."""
        return self._issue(common_name, [ExtendedKeyUsageOID.CLIENT_AUTH], [], lifetime, begins)

    def _issue(
        self,
        common_name: str,
        usages: list[x509.ObjectIdentifier],
        names: list[x509.GeneralName],
        lifetime: datetime.timedelta,
        begins: datetime.datetime | None,
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        start = begins or _now() - _CLOCK_SKEW
        builder = _builder(_name(common_name), self._certificate.subject, key.public_key(), start, start + lifetime)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(signer, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Identity(_key_pem(key), certificate.public_bytes(Encoding.PEM).decode())


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The facts of a certificate that its renewal keeps, and its expiry."""

    common_name: str
    hosts: tuple[str, ...]
    expires: datetime.datetime


def facts_of(certificate: str) -> CertificateFacts:
    """The facts of the first certificate in a PEM text. Raises ValueError."""
    certificate_read = x509.load_pem_x509_certificate(certificate.encode())
    names = certificate_read.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    try:
        listed = certificate_read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        hosts: tuple[str, ...] = ()
    else:
        addresses = listed.get_values_for_type(x509.IPAddress)
        hosts = (*listed.get_values_for_type(x509.DNSName), *map(str, addresses))
    return CertificateFacts(str(names[0].value) if names else "", hosts, certificate_read.not_valid_after_utc)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    begins: datetime.datetime,
    ends: datetime.datetime,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=public_key,
        serial_number=x509.random_serial_number(),
        not_valid_before=begins,
        not_valid_after=ends,
    )
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host.encode("idna").decode() if not host.isascii() else host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """PKCS8, which Java also reads."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
