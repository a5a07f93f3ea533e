from __future__ import annotations

import datetime
import ssl

import pytest

from oncelog.security.authority import Authority, Identity, NotAnAuthority, facts_of


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """The server's side of a handshake between two contexts in memory. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return sides[1]


def contexts(
    authority: Authority, shown: Identity, tmp_path, *, by_client: Identity | None = None
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context that shows a certificate, and a client's that trusts the authority as strictly as it goes."""
    (tmp_path / "server.pem").write_text(shown.pem)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem)
    server.load_cert_chain(tmp_path / "server.pem")
    client = ssl.create_default_context(cadata=authority.pem)
    for item in (server, client):
        item.verify_flags |= ssl.VERIFY_X509_STRICT
    if by_client is not None:
        (tmp_path / "client.pem").write_text(by_client.pem)
        client.load_cert_chain(tmp_path / "client.pem")
        server.verify_mode = ssl.CERT_REQUIRED
    return server, client


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "log.example"])
def test_a_brokers_certificate_is_taken_under_each_of_its_names(host: str, tmp_path) -> None:
    authority = Authority.create("test")
    identity = authority.broker(["localhost", "127.0.0.1", "::1", "log.example"])
    handshake(*contexts(authority, identity, tmp_path), host)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(?i)mismatch|not valid for"):
        handshake(*contexts(authority, identity, tmp_path), "elsewhere.example")


def test_a_client_shows_who_it_is_and_cannot_pose_as_a_broker(tmp_path) -> None:
    authority = Authority.create("test")
    alice, broker = authority.client("alice"), authority.broker(["localhost"])
    server = handshake(*contexts(authority, broker, tmp_path, by_client=alice), "localhost")
    assert server.getpeercert()["subject"] == ((("commonName", "alice"),),)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(?i)unsuitable|unsupported"):
        handshake(*contexts(authority, alice, tmp_path), "localhost")


def test_another_authority_of_the_same_name_is_not_trusted(tmp_path) -> None:
    authority, other = Authority.create("test"), Authority.create("test")
    server, _ = contexts(other, other.broker(["localhost"]), tmp_path)
    _, client = contexts(authority, authority.broker(["localhost"]), tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client, "localhost")


def test_an_expired_certificate_is_not_taken(tmp_path) -> None:
    authority = Authority.create("test")
    begins = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=2)
    expired = authority.broker(["localhost"], begins=begins, lifetime=datetime.timedelta(days=1))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(*contexts(authority, expired, tmp_path), "localhost")


def test_an_authority_comes_back_from_its_texts_and_only_with_its_own_key() -> None:
    authority, other = Authority.create("test"), Authority.create("other")
    again = Authority.load(authority.pem, authority.key_pem)
    assert (again.pem, again.key_pem) == (authority.pem, authority.key_pem)
    for certificate, key in ((authority.pem, other.key_pem), (authority.pem, authority.pem), ("", "")):
        with pytest.raises(NotAnAuthority):
            Authority.load(certificate, key)


def test_the_facts_of_a_certificate_and_no_key_in_its_text() -> None:
    identity = Authority.create("test").broker(["a.example", "127.0.0.1", "::1"], "broker")
    facts = facts_of(identity.pem)
    assert (facts.common_name, facts.hosts) == ("broker", ("a.example", "127.0.0.1", "::1"))
    assert "PRIVATE" not in repr(identity)
    with pytest.raises(ValueError, match="names or addresses"):
        Authority.create("test").broker([])
