"""A directory with all that a secured broker and its first clients need: ``oncelog security init``.

Rules: nothing is overwritten; the directory appears whole or not at all; it is its owner's alone (0700), and so are the
files with keys and passwords in them (0600).
"""

from __future__ import annotations

import datetime
import os
import re
import secrets
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from oncelog.base.notation.shell_words import option
from oncelog.base.scram_salts import SALT_BITS, salt_text
from oncelog.core.sasl.initial_users import initial_user_text
from oncelog.core.sasl.scram_credentials import credential_of
from oncelog.security.authority import LIFETIME, Authority, CertificateFacts, NotAnAuthority, facts_of
from oncelog.security.properties import (
    BROKER_NAME,
    MECHANISM,
    BrokerPlan,
    ClientLogin,
    broker_settings,
    java_settings,
    librdkafka_settings,
    properties_text,
    spark_settings,
)

ITERATIONS: Final = 8192
CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca.key"
BROKER_FILE: Final = "broker.pem"
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_PASSWORD_BYTES: Final = 24
_EVERYWHERE: Final = "0.0.0.0"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""A name that makes a file, and that the mapping rule takes out of a certificate."""


class SetupRefused(Exception):
    """The files cannot be made; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class SetupRequest:
    """A secured broker, as its owner wants it."""

    hosts: tuple[str, ...] = ()
    """Names and addresses by which clients reach it, the one to tell them first; empty: by loopback only."""
    port: int = 9092
    user: str = "admin"
    by_certificate: bool = False
    """True: clients log in by certificates, not by passwords."""
    lifetime: datetime.timedelta = LIFETIME


@dataclass(frozen=True, slots=True)
class CreatedFile:
    """A file that was made."""

    path: str
    purpose: str


@dataclass(frozen=True, slots=True)
class SetupResult:
    """The files that were made, and where clients go."""

    directory: str
    bootstrap_servers: str
    user: str
    hosts: tuple[str, ...]
    """The names and addresses in the broker's certificate."""
    expires: str
    files: tuple[CreatedFile, ...]


def new_password() -> str:
    """192 random bits, of characters that no format has to escape."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def set_up(directory: Path, wanted: SetupRequest) -> SetupResult:
    """Make the directory with its files. Raises SetupRefused, OSError."""
    directory = directory.absolute()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise SetupRefused(f"{directory} is there and not empty: nothing is overwritten, name another directory")
    _check_name(wanted.user)
    directory.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))  # of mode 0700
    try:
        made = _build(building, directory, wanted)
        building.rename(directory)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return made


def _build(building: Path, directory: Path, wanted: SetupRequest) -> SetupResult:
    hosts = tuple(dict.fromkeys((*wanted.hosts, *LOOPBACK, socket.gethostname())))
    authority = Authority.create(f"oncelog private authority of {socket.gethostname()}"[:64])
    identity = authority.broker(hosts, BROKER_NAME, lifetime=wanted.lifetime)
    password = None if wanted.by_certificate else new_password()
    user_file = directory / f"{wanted.user}.pem"
    login = ClientLogin(
        wanted.user, directory / CA_FILE, password, identity_file=user_file if wanted.by_certificate else None
    )
    plan = BrokerPlan(
        hosts,
        wanted.port,
        _EVERYWHERE if wanted.hosts else LOOPBACK[1],
        login,
        directory / BROKER_FILE,
        directory / "data",
        None if password is None else _initial_user(wanted.user, password),
    )
    servers = f"{_in_address(hosts[0])}:{wanted.port}"
    texts = {
        CA_FILE: (authority.pem, "the authority's certificate: whom to trust; may be given to everybody"),
        CA_KEY_FILE: (authority.key_pem, "the authority's key: who has it can pose as anybody; keep it offline"),
        BROKER_FILE: (identity.pem, "the broker's key and certificate"),
        "server.properties": (_server_text(directory, plan), "the broker: oncelog serve --config"),
        "client.properties": (
            _java_text(login, servers),
            "Java's clients and tools, and oncelog's own: --command-config",
        ),
        "librdkafka.properties": (_librdkafka_text(login, servers), "confluent-kafka, kcat and others on librdkafka"),
        "spark.properties": (_spark_text(login, servers), "options of Spark's sources and sinks"),
    }
    if wanted.by_certificate:
        client = authority.client(wanted.user, lifetime=wanted.lifetime)
        texts[user_file.name] = (client.pem, f"the key and certificate of User:{wanted.user}")
    for name, (text, _) in texts.items():
        write_new(building / name, text, 0o644 if name == CA_FILE else 0o600)
    files = tuple(CreatedFile(str(directory / name), purpose) for name, (_, purpose) in texts.items())
    return SetupResult(str(directory), servers, wanted.user, hosts, _expiry(facts_of(identity.certificate)), files)


def renew(directory: Path, hosts: tuple[str, ...], lifetime: datetime.timedelta) -> CertificateFacts:
    """Put a new key and certificate of the same authority in the place of the broker's; ``hosts`` are its names, empty:
    those it has. A broker that runs takes it up. Raises SetupRefused, OSError."""
    authority, path = _authority_of(directory), directory / BROKER_FILE
    try:
        old = facts_of(path.read_text("utf-8"))
    except ValueError:
        raise SetupRefused(f"{path} is not a certificate in PEM") from None
    identity = authority.broker(hosts or old.hosts, old.common_name, lifetime=lifetime)
    replace(path, identity.pem)
    return facts_of(identity.certificate)


def issue_client(directory: Path, name: str, lifetime: datetime.timedelta) -> Path:
    """The file with a new key and certificate of a client. Raises SetupRefused, OSError."""
    _check_name(name)
    path = directory / f"{name}.pem"
    try:
        write_new(path, _authority_of(directory).client(name, lifetime=lifetime).pem, 0o600)
    except FileExistsError:
        raise SetupRefused(f"{path} is there already: nothing is overwritten") from None
    return path


def _check_name(name: str) -> None:
    if name in (BROKER_NAME, "ca") or _NAME.fullmatch(name) is None:
        raise SetupRefused(
            f"{name!r} cannot be a user's name here: letters, digits and ._- make one; {BROKER_NAME} and ca are taken"
        )


def _authority_of(directory: Path) -> Authority:
    certificate, key = directory / CA_FILE, directory / CA_KEY_FILE
    try:
        return Authority.load(certificate.read_text("utf-8"), key.read_text("utf-8"))
    except NotAnAuthority as error:
        raise SetupRefused(f"{certificate} and {key} cannot be used: {error}") from None


def write_new(path: Path, text: str, mode: int) -> None:
    """Write a file that is not there yet, with these permissions from the start. Raises FileExistsError, OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(text)


def replace(path: Path, text: str) -> None:
    """Put a file of mode 0600 in the place of another, whole at any moment. Raises OSError."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        write_new(new, text, 0o600)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _initial_user(name: str, password: str) -> str:
    credential = credential_of(MECHANISM, password, salt_text(secrets.randbits(SALT_BITS)), ITERATIONS)
    return initial_user_text(name, MECHANISM, credential)


def _server_text(directory: Path, plan: BrokerPlan) -> str:
    heading = (
        "A broker with TLS, logins and access control lists, made by oncelog security init. It is started by\n"
        f"  oncelog serve {option('--config', directory / 'server.properties')}"
    )
    return properties_text(heading, broker_settings(plan))


def _java_text(login: ClientLogin, servers: str) -> str:
    heading = (
        "For Java's clients and tools, and for oncelog's own commands:\n"
        f"  oncelog topic list {option('--command-config', login.ca_file.with_name('client.properties'))}"
    )
    return properties_text(heading, java_settings(login, servers))


def _librdkafka_text(login: ClientLogin, servers: str) -> str:
    heading = (
        "For librdkafka: confluent-kafka of Python, Go and .NET take these keys in their configuration, and\n"
        f"  kcat -F {login.ca_file.with_name('librdkafka.properties')} -L\n"
        "reads this file."
    )
    return properties_text(heading, librdkafka_settings(login, servers), java=False)


def _spark_text(login: ClientLogin, servers: str) -> str:
    heading = "Options of Spark's readers and writers, format oncelog or kafka: spark.read.format(…).options(…)."
    return properties_text(heading, spark_settings(login, servers), java=False)


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _expiry(facts: CertificateFacts) -> str:
    return facts.expires.strftime("%Y-%m-%d")
