"""The part of the session that asks about the cluster itself, and about the settings of everything else than topics."""

from __future__ import annotations

from tests.interop.cluster_tools.session import Session


def entities(session: Session) -> None:
    """kafka-cluster, kafka-groups, kafka-client-metrics; kafka-configs of users, clients, addresses."""
    session.run("kafka-cluster", "list-endpoints", columns=("PORT",))
    session.run("kafka-groups", "--list")
    session.run("kafka-groups", "--list", "--consumer")
    for entity in (
        ("users", "alice"),
        ("clients", "app"),
        ("ips", "127.0.0.1"),
        ("groups", "g"),
        ("client-metrics", "m"),
    ):
        _settings(session, *entity)
    session.run("kafka-configs", "--describe", "--entity-type", "users", "--entity-type", "clients")
    session.run("kafka-client-metrics", "--list")


def _settings(session: Session, kind: str, name: str) -> None:
    key = {
        "users": "consumer_byte_rate=1000,request_percentage=50",
        "clients": "producer_byte_rate=1000",
        "ips": "connection_creation_rate=10",
        "groups": "consumer.session.timeout.ms=50000",
        "client-metrics": "interval.ms=1000",
    }[kind]
    one = ("--entity-type", kind, "--entity-name", name)
    session.run("kafka-configs", "--alter", *one, "--add-config", key)
    session.run("kafka-configs", "--alter", *one, "--add-config", "no.such.key=1")
    session.run("kafka-configs", "--describe", *one)
    session.run("kafka-configs", "--alter", *one, "--delete-config", ",".join(k.split("=")[0] for k in key.split(",")))
    session.run("kafka-configs", "--describe", *one)
