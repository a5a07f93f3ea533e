"""Creates the directory of a secured broker: certificates, and settings for it and its first clients (``oncelog
security init``).

The rules: nothing is overwritten; the directory appears whole or not at all; only its owner has access (0700), also to
the files with keys and passwords (0600).
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
# A name that is valid as a file name and under the mapping rule for certificates.
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class SetupRefused(Exception):
    """The files cannot be created; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class SetupRequest:
    hosts: tuple[str, ...] = ()
    """Names and addresses by which clients reach it, the advertised one first; empty: loopback only."""
    port: int = 9092
    user: str = "admin"
    by_certificate: bool = False
    """Clients log in by certificates, not by passwords."""
    lifetime: datetime.timedelta = LIFETIME


@dataclass(frozen=True, slots=True)
class CreatedFile:
    path: str
    purpose: str


@dataclass(frozen=True, slots=True)
class SetupResult:
    directory: str
    bootstrap_servers: str
    user: str
    hosts: tuple[str, ...]
    """Names and addresses in the broker's certificate."""
    expires: str
    files: tuple[CreatedFile, ...]


def new_password() -> str:
    """192 random bits, in characters that no format has to escape."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


def set_up(directory: Path, request: SetupRequest) -> SetupResult:
    """Create the directory with its files. Raises SetupRefused, OSError."""
    directory = directory.absolute()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise SetupRefused(f"{directory} exists and is not empty: nothing is overwritten, so choose another directory")
    _check_name(request.user)
    directory.parent.mkdir(parents=True, exist_ok=True)
    # Built beside the target and renamed: the directory appears whole or not at all.
    building = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))  # of mode 0700
    try:
        result = _build(building, directory, request)
        building.rename(directory)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return result


def _build(building: Path, directory: Path, request: SetupRequest) -> SetupResult:
    hosts = tuple(dict.fromkeys((*request.hosts, *LOOPBACK, socket.gethostname())))
    authority = Authority.create(f"oncelog private authority of {socket.gethostname()}"[:64])
    identity = authority.broker(hosts, BROKER_NAME, lifetime=request.lifetime)
    password = None if request.by_certificate else new_password()
    user_file = directory / f"{request.user}.pem"
    login = ClientLogin(
        request.user, directory / CA_FILE, password, identity_file=user_file if request.by_certificate else None
    )
    plan = BrokerPlan(
        hosts,
        request.port,
        _EVERYWHERE if request.hosts else LOOPBACK[1],
        login,
        directory / BROKER_FILE,
        directory / "data",
        None if password is None else _initial_user(request.user, password),
    )
    servers = f"{_bracketed(hosts[0])}:{request.port}"
    texts = {
        CA_FILE: (authority.pem, "the authority's certificate, to verify the others; not secret"),
        CA_KEY_FILE: (authority.key_pem, "the authority's key: its holder can pose as anyone; keep it offline"),
        BROKER_FILE: (identity.pem, "the broker's key and certificate"),
        "server.properties": (_server_text(directory, plan), "the broker: oncelog serve --config"),
        "client.properties": (
            _java_text(login, servers),
            "Java's clients and tools, and oncelog's own: --command-config",
        ),
        "librdkafka.properties": (_librdkafka_text(login, servers), "confluent-kafka, kcat and others on librdkafka"),
        "spark.properties": (_spark_text(login, servers), "options of Spark's sources and sinks"),
    }
    if request.by_certificate:
        client = authority.client(request.user, lifetime=request.lifetime)
        texts[user_file.name] = (client.pem, f"the key and certificate of User:{request.user}")
    for name, (text, _) in texts.items():
        write_new(building / name, text, 0o644 if name == CA_FILE else 0o600)
    files = tuple(CreatedFile(str(directory / name), purpose) for name, (_, purpose) in texts.items())
    return SetupResult(str(directory), servers, request.user, hosts, _expiry(facts_of(identity.certificate)), files)


def renew(directory: Path, hosts: tuple[str, ...], lifetime: datetime.timedelta) -> CertificateFacts:
    """Replace the broker's key and certificate with new ones of the same authority, for ``hosts`` or the present names.
    A running broker loads them. Raises SetupRefused, OSError."""
    authority, path = _authority_of(directory), directory / BROKER_FILE
    try:
        old = facts_of(path.read_text("utf-8"))
    except ValueError:
        raise SetupRefused(f"{path} is not a certificate in PEM") from None
    identity = authority.broker(hosts or old.hosts, old.common_name, lifetime=lifetime)
    replace(path, identity.pem)
    return facts_of(identity.certificate)


def issue_client(directory: Path, name: str, lifetime: datetime.timedelta) -> Path:
    """Create the file with a new key and certificate of a client. Raises SetupRefused, OSError."""
    _check_name(name)
    path = directory / f"{name}.pem"
    try:
        write_new(path, _authority_of(directory).client(name, lifetime=lifetime).pem, 0o600)
    except FileExistsError:
        raise SetupRefused(f"{path} exists already: nothing is overwritten") from None
    return path


def _check_name(name: str) -> None:
    if name in (BROKER_NAME, "ca") or _NAME.fullmatch(name) is None:
        raise SetupRefused(
            f"{name!r} is not a valid user name: use 1 to 64 letters, digits and ._-, except {BROKER_NAME} and ca"
        )


def _authority_of(directory: Path) -> Authority:
    certificate, key = directory / CA_FILE, directory / CA_KEY_FILE
    try:
        return Authority.load(certificate.read_text("utf-8"), key.read_text("utf-8"))
    except NotAnAuthority as error:
        raise SetupRefused(f"{certificate} and {key} cannot be used: {error}") from None


def write_new(path: Path, text: str, mode: int) -> None:
    """Create a file with these permissions from the start. Raises FileExistsError, OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)
        file.write(text)


def replace(path: Path, text: str) -> None:
    """Replace a file atomically by one of mode 0600. Raises OSError."""
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
        "A broker with TLS, logins and access control lists, made by oncelog security init. Start it with\n"
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
        "For librdkafka: confluent-kafka for Python, Go and .NET takes these keys in its configuration, and\n"
        f"  kcat -F {login.ca_file.with_name('librdkafka.properties')} -L\n"
        "reads this file."
    )
    return properties_text(heading, librdkafka_settings(login, servers), java=False)


def _spark_text(login: ClientLogin, servers: str) -> str:
    heading = "Options of Spark's readers and writers, format oncelog or kafka: spark.read.format(…).options(…)."
    return properties_text(heading, spark_settings(login, servers), java=False)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _expiry(facts: CertificateFacts) -> str:
    return facts.expires.strftime("%Y-%m-%d")
