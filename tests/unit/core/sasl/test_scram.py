"""SCRAM as a server: the exchange of the RFC, and each way to deviate from it."""

from __future__ import annotations

import base64
import re
from collections import Counter

import pytest

from oncelog.base.scram_salts import salt_text
from oncelog.client.errors import AuthenticationFailed
from oncelog.client.machine.sasl.scram import Scram
from oncelog.core.sasl.exchange import Login, LoginRefused
from oncelog.core.sasl.scram import ScramServer
from oncelog.core.sasl.scram_credentials import DamagedCredential, ScramCredential, credential_of, read_credential
from oncelog.core.sasl.unknown_users import CredentialForms, credential_for, fake_credential, form_of, forms_of_users

MECHANISM = "SCRAM-SHA-256"
CREDENTIAL = credential_of(MECHANISM, "pencil", b"W\x92\x1c\x8a salt", 4096)


def server(credential: ScramCredential = CREDENTIAL) -> ScramServer:
    return ScramServer(MECHANISM, lambda user: credential, "server-nonce")


def exchanged(user: str = "user", password: str = "pencil", change=lambda message: message):
    """Client and server wired back to back; the server's last step."""
    machine, client = server(), Scram(MECHANISM, user, password, "client-nonce")
    first = machine.step(client.first(), 0)
    assert first.login is None
    last = machine.step(change(client.step(first.answer)), 0)
    assert client.step(last.answer) is None
    return last


@pytest.mark.parametrize("user", ["user", "a,b=c", "jürgen", "=2C"])
def test_who_knows_the_password_is_let_in_and_the_server_proves_that_it_does_too(user):
    assert exchanged(user).login == Login(user)


def test_the_example_of_rfc_7677():
    credential = credential_of(MECHANISM, "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    machine = ScramServer(MECHANISM, lambda user: credential, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = machine.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", 0).answer
    assert first == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = machine.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        0,
    )
    assert last.answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_a_wrong_password_is_refused_without_a_reason_to_show():
    with pytest.raises(LoginRefused) as refused:
        exchanged(password="pen")
    assert refused.value.shown is None


@pytest.mark.parametrize("nonce", [b"r=client-nonce,", b"r=server-nonce,", b"r=client-nonceserver-nonc,", b"r=,"])
def test_cve_2024_56128_the_last_message_has_the_whole_nonce(nonce):
    with pytest.raises(LoginRefused, match="nonce"):
        exchanged(change=lambda message: message.replace(b"r=client-nonceserver-nonce,", nonce))


def test_cve_2024_56128_a_proof_for_another_nonce_is_none():
    """The proof is right for what is said, but another exchange's nonce is said."""
    machine, client = server(), Scram(MECHANISM, "user", "pencil", "client-nonce")
    machine.step(client.first(), 0)
    replayed = client.step(b"r=client-nonceolder-nonce,s=V5IciiBzYWx0,i=4096")
    with pytest.raises(LoginRefused, match="nonce"):
        machine.step(replayed, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda message: message.replace(b"c=biws", b"c=eSws"),
        lambda message: message.replace(b",p=", b",m=x,p="),
        lambda message: message.replace(b",p=", b",x,p="),
        lambda message: message[:-4],
        lambda message: message + b"A",
        lambda message: message.rpartition(b",")[0],
        lambda message: b"",
        lambda message: b"\xff" + message,
        lambda message: message + b"A" * 20000,
    ],
)
def test_a_last_message_that_is_changed_is_refused(change):
    with pytest.raises(LoginRefused):
        exchanged(change=change)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,,n=user",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"n,,r=x,n=user",
        b"p=tls-unique,,n=user,r=x",
        b"n,a=root,n=user,r=x",
        b"n,b=user,n=user,r=x",
        b"n,,m=x,n=user,r=x",
        b"n,,n=user,r=x,m=x",
        b"n,,n=user,r=x,tokenauth=true",
        b"n,,n=user,r=x y",
        b"n,,n=us=er,r=x",
        b"n,,n=user\0,r=x",
        b"n,,n=\xff,r=x",
        b"n,,n=user,r=" + b"x" * 20000,
    ],
)
def test_a_first_message_that_is_none_is_refused(first):
    with pytest.raises(LoginRefused):
        server().step(first, 0)


def test_extensions_that_need_not_be_understood_are_passed_over():
    machine = server()
    assert machine.step(b"n,a=user,n=user,r=x,tokenauth=false,colour=red", 0).answer.startswith(b"r=xserver-nonce,")


def test_nothing_is_taken_after_the_end_or_a_refusal():
    machine, client = server(), Scram(MECHANISM, "user", "pencil", "client-nonce")
    last = client.step(machine.step(client.first(), 0).answer)
    machine.step(last, 0)
    with pytest.raises(LoginRefused):
        machine.step(last, 0)
    refused = server()
    with pytest.raises(LoginRefused):
        refused.step(b"n,,", 0)
    with pytest.raises(LoginRefused):
        refused.step(client.first(), 0)


def test_a_credential_is_written_as_apache_kafka_writes_it():
    text = CREDENTIAL.text()
    assert [part.partition("=")[0] for part in text.split(",")] == ["salt", "stored_key", "server_key", "iterations"]
    assert read_credential(MECHANISM, text) == CREDENTIAL
    assert "salt" not in repr(CREDENTIAL)


@pytest.mark.parametrize("iterations", ["4095", "0", "-1", "16385", "2147483647", "9" * 40, "٤٠٩٦", ""])
def test_cve_2026_10143_iterations_are_bounded_both_ways(iterations):
    text = CREDENTIAL.text().replace("iterations=4096", f"iterations={iterations}")
    with pytest.raises(DamagedCredential):
        read_credential(MECHANISM, text)
    # Such a credential lets nobody in, and its user looks like any other.
    credential = credential_for(b"secret", MECHANISM, "user", {MECHANISM: text}, CredentialForms())
    assert credential == fake_credential(b"secret", MECHANISM, "user", CredentialForms())


@pytest.mark.parametrize("iterations", [1, 4095, 1_000_001, 2_147_483_647])
def test_cve_2026_10143_our_client_refuses_iterations_out_of_bounds(iterations):
    client = Scram(MECHANISM, "user", "pencil", "nonce")
    client.first()
    with pytest.raises(AuthenticationFailed):
        client.step(f"r=nonce2,s=V5IciiBzYWx0,i={iterations}".encode())


@pytest.mark.parametrize("text", ["", "salt=", "a=b", "salt=!,stored_key=!,server_key=!,iterations=4096"])
def test_what_is_no_credential_is_damaged(text):
    with pytest.raises(DamagedCredential):
        read_credential(MECHANISM, text)


def test_a_key_of_another_mechanism_is_damaged():
    with pytest.raises(DamagedCredential):
        read_credential("SCRAM-SHA-512", CREDENTIAL.text())


def test_a_stranger_has_a_salt_that_depends_on_name_mechanism_and_secret_alone():
    salts = {
        fake_credential(secret, mechanism, user, CredentialForms()).salt
        for secret in (b"1", b"2")
        for mechanism in (MECHANISM, "SCRAM-SHA-512")
        for user in ("a", "b")
    }
    assert len(salts) == 8
    assert all(20 < len(salt) <= 26 and salt.isalnum() for salt in salts)
    assert salt_text(0) == b"0"


def with_salt(salt: bytes, iterations: int) -> ScramCredential:
    return ScramCredential(salt, CREDENTIAL.stored_key, CREDENTIAL.server_key, iterations)


USERS = [with_salt(salt_text(1 << 129 | number), 4096) for number in range(60)]
USERS += [with_salt(bytes(range(number, number + 64)), 10_000) for number in range(30)]
USERS += [with_salt(b"%032x" % (number * 7**30), 8192) for number in range(1, 10)]
USERS += [with_salt(b"Zz-_" * 6, 16_384)]


def strangers(users: list[ScramCredential], count: int = 4000) -> list[ScramCredential]:
    forms = CredentialForms(map(form_of, users))
    return [fake_credential(b"secret", MECHANISM, f"name-{number}", forms) for number in range(count)]


def test_strangers_look_like_users_as_often_as_users_do():
    shown = Counter((form_of(stranger).iterations, len(stranger.salt)) for stranger in strangers(USERS))
    of_users = Counter((form_of(user).iterations, len(user.salt)) for user in USERS)
    assert {iterations for iterations, _ in shown} == {4096, 8192, 10_000, 16_384}
    for (iterations, size), count in of_users.items():
        if iterations != 4096:  # the size of Apache Kafka's salts varies
            assert count * 40 * 0.5 < shown[iterations, size] < count * 40 * 1.6
    hexadecimal = [stranger.salt for stranger in strangers(USERS) if stranger.iterations == 8192]
    assert all(re.fullmatch(rb"[0-9a-f]{32}", salt) for salt in hexadecimal)


def test_one_user_more_changes_few_strangers():
    before, after = strangers(USERS), strangers([*USERS, with_salt(b"x" * 24, 4096)])
    assert sum(old != new for old, new in zip(before, after, strict=True)) < 4000 * 0.03


def test_a_user_without_the_mechanism_is_a_stranger_of_it():
    configs = {"SCRAM-SHA-512": "x"}
    shown = credential_for(b"secret", MECHANISM, "user", configs, CredentialForms())
    assert shown == fake_credential(b"secret", MECHANISM, "user", CredentialForms())


def test_forms_are_those_of_credentials_that_let_somebody_in():
    many = {MECHANISM: CREDENTIAL.text().replace("4096", "8192")}
    damaged = {MECHANISM: CREDENTIAL.text().replace("4096", "999999")}
    forms = forms_of_users([many, damaged, {}, {"x": "y"}])
    assert forms[MECHANISM].at(0) == forms[MECHANISM].at(2**64 - 1) == form_of(with_salt(CREDENTIAL.salt, 8192))
    assert forms["SCRAM-SHA-512"].at(0).iterations == 4096
