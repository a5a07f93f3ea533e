"""Texts of the properties files of a secured broker and its clients, with a comment for each setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from oncelog.base.notation.java_properties import escape_value

CLIENTS: Final = "CLIENTS"
"""Name of the listener for clients."""
BROKERS: Final = "BROKERS"
"""Name of the listener between brokers."""
BROKER_NAME: Final = "broker"
"""The name in a broker's certificate, and so its principal."""
MECHANISM: Final = "SCRAM-SHA-512"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MAPPING_RULES: Final = "RULE:^CN=([A-Za-z0-9._-]+)$/$1/,DEFAULT"
"""Maps a certificate whose whole name is ``CN=alice`` to the principal ``User:alice``."""
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Setting(NamedTuple):
    key: str
    value: str
    comment: str = ""
    """Printed above the line; a setting without one belongs to the preceding line."""


def properties_text(heading: str, settings: Iterable[Setting], *, java: bool = True) -> str:
    """A properties file. ``java``: escape values as Java's format requires; librdkafka's tools know no escapes."""
    lines = [f"# {line}" for line in heading.splitlines()]
    for key, value, comment in settings:
        if comment:
            lines += ["", *(f"# {line}" for line in comment.splitlines())]
        lines.append(f"{key}={escape_value(value) if java else value}")
    return "\n".join(lines) + "\n"


def jaas(module: str, options: Mapping[str, str]) -> str:
    """A value of ``sasl.jaas.config``."""
    written = (f"{name}={_quoted(value)}" for name, value in options.items())
    return f"{' '.join((module, 'required', *written))};"


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """How a client logs in: by password or by certificate."""

    user: str
    ca_file: Path
    password: str | None = field(default=None, repr=False)
    identity_file: Path | None = None
    """The private key and certificate in one file, instead of a password."""

    @property
    def protocol(self) -> str:
        return "SSL" if self.password is None else "SASL_SSL"


def librdkafka_settings(login: ClientLogin, servers: str) -> list[Setting]:
    """Settings of librdkafka and its bindings, kcat and confluent-kafka among them."""
    settings = [
        Setting("bootstrap.servers", servers, "Where the broker is. Its certificate has to name this host."),
        Setting("security.protocol", login.protocol, _protocol_comment(login)),
        Setting("ssl.ca.location", str(login.ca_file), "Brokers are trusted if this authority has signed for them."),
    ]
    if login.password is not None:
        return [
            *settings,
            Setting("sasl.mechanism", MECHANISM, "How the password is proved without sending it."),
            Setting("sasl.username", login.user, f"This client's name: User:{login.user} in access control lists."),
            Setting("sasl.password", login.password, "Keep this file to its owner."),
        ]
    comment = f"This client's identity: the certificate of User:{login.user}, and its private key."
    return [
        *settings,
        Setting("ssl.certificate.location", str(login.identity_file), comment),
        Setting("ssl.key.location", str(login.identity_file)),
    ]


def java_settings(login: ClientLogin, servers: str) -> list[Setting]:
    """Settings of Java's clients and tools, of Kafka Connect and Streams, and of oncelog's commands."""
    settings = [
        Setting("bootstrap.servers", servers, "Where the broker is. Its certificate has to name this host."),
        Setting("security.protocol", login.protocol, _protocol_comment(login)),
        Setting("ssl.truststore.type", "PEM", "Brokers are trusted if this authority has signed for them."),
        Setting("ssl.truststore.location", str(login.ca_file)),
    ]
    if login.password is not None:
        module = jaas(_SCRAM_MODULE, {"username": login.user, "password": login.password})
        return [
            *settings,
            Setting("sasl.mechanism", MECHANISM, "How the password is proved without sending it."),
            Setting("sasl.jaas.config", module, f"This client's name: User:{login.user} in access control lists."),
        ]
    comment = f"This client's identity: the private key of User:{login.user} and its certificate, in one file."
    return [
        *settings,
        Setting("ssl.keystore.type", "PEM", comment),
        Setting("ssl.keystore.location", str(login.identity_file)),
    ]


def spark_settings(login: ClientLogin, servers: str) -> list[Setting]:
    """Options of Spark's sources and sinks, both oncelog's and the Kafka connector's."""
    return [setting._replace(key=f"kafka.{setting.key}") for setting in java_settings(login, servers)]


def _protocol_comment(login: ClientLogin) -> str:
    return "TLS, and a certificate to log in with." if login.password is None else "TLS, and a password to log in with."


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """The broker's settings that the files contain."""

    hosts: tuple[str, ...]
    """Names and addresses in its certificate; the first is advertised to clients."""
    port: int
    listen: str
    """The address to listen on."""
    login: ClientLogin
    identity_file: Path
    data_directory: Path
    initial_users: str | None = field(default=None, repr=False)


def broker_settings(plan: BrokerPlan) -> list[Setting]:
    """Settings of the broker: TLS everywhere, logins for clients, certificates between brokers, access control
    lists."""
    strict = Setting("oncelog.require.security", "true", "A listener without authentication is refused.")
    return [strict, *_listener_settings(plan), *_store_settings(plan), *_login_settings(plan), *_access_settings(plan)]


def _listener_settings(plan: BrokerPlan) -> list[Setting]:
    def at(host: str) -> str:
        name = f"[{host}]" if ":" in host else host
        return f"{CLIENTS}://{name}:{plan.port},{BROKERS}://{name}:{plan.port + 1}"

    return [
        Setting("listeners", at(plan.listen), "Where the broker listens: a port for clients, one for other brokers."),
        Setting(
            "advertised.listeners",
            at(plan.hosts[0]),
            "The advertised addresses; the certificate must contain this name.",
        ),
        Setting(
            "listener.security.protocol.map",
            f"{CLIENTS}:{plan.login.protocol},{BROKERS}:SSL",
            "Nothing is sent in the clear: clients use TLS and log in, brokers show each other certificates.",
        ),
        Setting("inter.broker.listener.name", BROKERS),
    ]


def _store_settings(plan: BrokerPlan) -> list[Setting]:
    return [
        Setting(
            "ssl.keystore.type",
            "PEM",
            "The broker's private key and certificate. The file may be replaced while the broker runs: see\n"
            "oncelog security renew.",
        ),
        Setting("ssl.keystore.location", str(plan.identity_file)),
        Setting("ssl.truststore.type", "PEM", "Certificates of others are trusted if this authority has signed them."),
        Setting("ssl.truststore.location", str(plan.login.ca_file)),
    ]


def _login_settings(plan: BrokerPlan) -> list[Setting]:
    required = "A client certificate is required."
    names = Setting(
        "ssl.principal.mapping.rules",
        MAPPING_RULES,
        "A certificate for CN=alice is that of User:alice; any other name is taken as it stands.",
    )
    settings = [Setting(f"listener.name.{BROKERS.lower()}.ssl.client.auth", "required", required), names]
    if plan.initial_users is None:
        return [Setting(f"listener.name.{CLIENTS.lower()}.ssl.client.auth", "required"), *settings]
    return [
        Setting(
            f"listener.name.{CLIENTS.lower()}.sasl.enabled.mechanisms",
            MECHANISM,
            "Clients log in with a password, which is never sent to the broker.",
        ),
        Setting(
            "oncelog.initial.users",
            plan.initial_users,
            "The first user, created with the cluster at its first start and never again, with a value that verifies\n"
            "the password, not the password. It creates other users with kafka-configs or any AdminClient.",
        ),
        *settings,
    ]


def _access_settings(plan: BrokerPlan) -> list[Setting]:
    return [
        Setting(
            "authorizer.class.name", AUTHORIZER, "Access control lists decide; anything they do not allow is denied."
        ),
        Setting(
            "super.users",
            f"User:{plan.login.user};User:{BROKER_NAME}",
            "Superusers: the first user, and the brokers themselves.",
        ),
        Setting("log.dirs", str(plan.data_directory), "Where the records are."),
    ]
