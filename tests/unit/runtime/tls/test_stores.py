"""Key and trust stores: PEM however it was written, PKCS12, and what is neither."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate, load_pem_x509_certificates

from oncelog.node.listeners.broker_settings import StoreUnusable
from oncelog.node.listeners.tls import StoreSettings, TlsSettings
from oncelog.runtime.tls.contexts import make_contexts, read_key_store, read_trust_store
from tests.certificates import Authority, Identity

AUTHORITY = Authority()
BROKER = AUTHORITY.broker()
TRUSTED = StoreSettings("PEM", certificates=AUTHORITY.pem)


def pkcs12_of(identity: Identity, password: bytes) -> bytes:
    key = load_pem_private_key(identity.key.encode(), None)
    own, *others = load_pem_x509_certificates((identity.chain + AUTHORITY.pem).encode())
    return pkcs12.serialize_key_and_certificates(b"broker", key, own, others, BestAvailableEncryption(password))  # type: ignore[arg-type]


@pytest.mark.parametrize("mangle", [str, lambda pem: pem.replace("\n", " "), lambda pem: f"Bag Attributes\n{pem}\nend"])
def test_pem_is_read_however_its_lines_end(mangle, tmp_path: Path) -> None:
    path = tmp_path / "store.pem"
    path.write_text(mangle(BROKER.pem))
    inline = StoreSettings("PEM", certificates=mangle(BROKER.chain), key=mangle(BROKER.key))
    for store in (inline, StoreSettings("PEM", location=str(path))):
        make_contexts(TlsSettings(store, TRUSTED))


def test_an_encrypted_key_needs_its_password() -> None:
    key = load_pem_private_key(BROKER.key.encode(), None)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hush")).decode()
    store = StoreSettings("PEM", certificates=BROKER.chain, key=secret, key_password="hush")
    make_contexts(TlsSettings(store, TRUSTED))
    with pytest.raises(StoreUnusable, match="cannot be used"):
        make_contexts(TlsSettings(StoreSettings("PEM", certificates=BROKER.chain, key=secret), TRUSTED))


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_is_read_under_both_of_its_names(kind: str, tmp_path: Path) -> None:
    """Java's tools have written PKCS12 for JKS since version 9."""
    path = tmp_path / "store.p12"
    path.write_bytes(pkcs12_of(BROKER, b"hush"))
    store = StoreSettings(kind, location=str(path), password="hush")
    result = read_key_store(store)
    own = load_pem_x509_certificate(BROKER.chain.encode())
    assert load_pem_x509_certificate(result.chain[0].encode()) == own
    make_contexts(TlsSettings(store, store))
    assert len(read_trust_store(store)) >= 2
    with pytest.raises(StoreUnusable, match="Invalid password"):
        read_key_store(StoreSettings(kind, location=str(path), password="wrong"))


def test_javas_own_format_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "broker.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(StoreUnusable) as refused:
        read_key_store(StoreSettings("JKS", location=str(path), password="p"))
    assert f"keytool -importkeystore -srckeystore {path} -destkeystore {tmp_path}/broker.p12" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (BROKER.chain, "has 0 private keys in PEM, one is needed"),
        (BROKER.key * 2 + BROKER.chain, "has 2 private keys"),
        (BROKER.key, "has no certificate in PEM beside the private key"),
        (AUTHORITY.broker().key + BROKER.chain, "KEY_VALUES_MISMATCH"),
    ],
)
def test_a_key_store_has_one_key_and_its_certificate(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "store.pem"
    path.write_text(text)
    with pytest.raises(StoreUnusable, match=sentence):
        make_contexts(TlsSettings(StoreSettings("PEM", location=str(path)), TRUSTED))


def test_what_cannot_be_used_says_what_it_is(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.pem")
    with pytest.raises(StoreUnusable, match=f"cannot read {missing}: No such file"):
        read_trust_store(StoreSettings("PEM", location=missing))
    with pytest.raises(StoreUnusable, match="has no certificate to trust"):
        read_trust_store(StoreSettings("PEM", certificates="nothing"))
    with pytest.raises(StoreUnusable, match="TLS needs a certificate"):
        make_contexts(TlsSettings(StoreSettings("JKS"), TRUSTED))


@pytest.mark.parametrize(
    ("suites", "sentence"),
    [
        (("TLS_AES_128_GCM_SHA256",), "TLS 1.3 suites cannot be chosen"),
        (("TLS_NO_WITH_SUCH_SUITE",), "OpenSSL does not have"),
    ],
)
def test_suites_that_cannot_be_are_refused(suites: tuple[str, ...], sentence: str) -> None:
    store = StoreSettings("PEM", certificates=BROKER.chain, key=BROKER.key)
    with pytest.raises(StoreUnusable, match=sentence):
        make_contexts(TlsSettings(store, TRUSTED, cipher_suites=suites))


@pytest.mark.parametrize(
    "suite",
    [
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
    ],
)
def test_suites_have_javas_names_or_openssls(suite: str) -> None:
    store = StoreSettings("PEM", certificates=BROKER.chain, key=BROKER.key)
    make_contexts(TlsSettings(store, TRUSTED, cipher_suites=(suite,)))
