"""``Broker(security=…)`` and ``Cluster(security=…)`` through unmodified clients."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from oncelog.client.blocking.client import Client
from oncelog.client.errors import AuthenticationFailed, ClientError
from oncelog.testing import Broker, Cluster
from tests.waiting import HANG_S, wait_until

pytestmark = pytest.mark.slow
KINDS = ["mtls", "scram", "plain", "oauth"]


def produced(config: dict[str, Any], topic: str = "t") -> KafkaError | None:
    outcomes: list[KafkaError | None] = []
    producer = Producer({**config, "log_level": 0})
    producer.produce(topic, b"v", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(HANG_S) == 0
    return outcomes[0]


def wait_until_refused(client: AdminClient, failures: list[KafkaError]) -> None:
    def is_refused() -> bool:
        client.poll(0)
        return KafkaError._AUTHENTICATION in {error.code() for error in failures}

    wait_until(is_refused, lambda: f"a refusal beside {failures}")


def consumed(config: dict[str, Any]) -> bytes:
    consumer = Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0})
    consumer.subscribe(["t"])
    message = consumer.poll(HANG_S)
    consumer.close()
    assert message is not None
    assert message.error() is None, message.error()
    value = message.value()
    assert value is not None
    return value


def refusal(config: dict[str, Any]) -> str:
    """The error that oncelog's own client is refused with."""
    with pytest.raises(ClientError) as refused, Client(config["bootstrap.servers"], config=config) as client:
        client.metadata(["t"])
    return str(refused.value)


def test_tls_alone_lets_in_who_trusts_the_authority() -> None:
    with Broker(security="tls") as broker:
        assert produced(broker.client_config()) is None
        assert consumed(broker.client_config()) == b"v"
        for method in (lambda: broker.add_user("alice"), lambda: broker.allow("alice")):
            with pytest.raises(ValueError, match="has no users"):
                method()


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_may_do_what_is_allowed_and_nothing_else(kind: str) -> None:
    with Broker(security=kind) as broker:
        broker.add_user("alice")
        config = broker.client_config("alice")
        broker.allow("alice", "write", "create", topic="t")
        assert produced(config) is None
        error = produced(config, "secret")
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        broker.allow("alice", "read", topic="t", group="g")
        assert consumed(config) == b"v"
        broker.deny("alice", "write", topic="t")
        error = produced(config)
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("kind", KINDS)
def test_oncelogs_own_client_takes_javas_settings(kind: str) -> None:
    with Broker(security=kind) as broker:
        broker.add_user("alice")
        broker.allow("alice")
        config = broker.client_config("alice", java=True)
        with Client(config["bootstrap.servers"], config=config) as client:
            assert client.topic("t", create=True).name == "t"


@pytest.mark.parametrize("kind", ["scram", "plain"])
def test_a_wrong_password_and_a_revoked_user_are_told_so(kind: str) -> None:
    with Broker(security=kind) as broker:
        broker.add_user("alice", 'quotes " and \\')
        broker.allow("alice")
        config = broker.client_config("alice")
        assert produced(config) is None
        wrong = {**config, "sasl.password": "wrong"}
        with pytest.raises(AuthenticationFailed), Client(config["bootstrap.servers"], config=wrong) as client:
            client.metadata(["t"])
        broker.add_user("bob")
        broker.security.revoke("alice")
        with pytest.raises(AuthenticationFailed), Client(config["bootstrap.servers"], config=config) as client:
            client.metadata(["t"])
        with pytest.raises(ValueError, match="no user 'alice'"):
            broker.client_config("alice")
        assert broker.client_config("bob")["sasl.username"] == "bob"


def test_tokens_that_are_expired_or_for_others_are_refused() -> None:
    with Broker(security="oauth") as broker:
        broker.add_user("alice")
        broker.allow("alice")
        good = broker.client_config("alice")
        for token in (broker.security.token("alice", expires_in=-60), broker.security.token("alice", aud="other")):
            config = {**good, "oauth_cb": lambda _, token=token: (token, 4e9)}
            failures: list[KafkaError] = []
            client = AdminClient({**config, "error_cb": failures.append, "log_level": 0})
            wait_until_refused(client, failures)
            with pytest.raises(KafkaException):
                client.list_topics(timeout=0.2)
        assert produced(good) is None


def test_an_expired_certificate_fails_new_connections_until_it_is_rotated() -> None:
    with Broker(security="scram") as broker:
        broker.add_user("alice")
        broker.allow("alice")
        config = broker.client_config("alice")
        broker.security.expire_certificate()
        assert "expired" in refusal(config)
        broker.security.rotate()
        assert produced(config) is None


def test_a_reset_takes_users_and_lists_away_and_a_restart_keeps_them() -> None:
    with Broker(security="scram") as broker:
        broker.add_user("alice")
        broker.allow("alice")
        broker.kill()
        broker.start()
        config = broker.client_config("alice")
        assert produced(config) is None
        broker.reset()
        with pytest.raises(ValueError, match="no user"):
            broker.client_config("alice")
        assert "uthentication" in refusal(config)


@pytest.mark.parametrize("kind", ["scram", "mtls"])
def test_a_clusters_brokers_take_the_same_users_and_reach_each_other(kind: str) -> None:
    with Cluster(3, security=kind) as cluster:
        cluster.add_user("alice")
        cluster.allow("alice")
        config = cluster.client_config("alice")
        assert produced({**config, "acks": "all"}) is None
        leader = cluster.leader("t")
        assert leader is not None
        cluster.kill(leader)
        assert produced({**config, "acks": "all"}) is None
        for broker_id, member in cluster.brokers.items():
            if broker_id != leader:
                with Client(member.bootstrap_servers, config=cluster.client_config("alice", java=True)) as client:
                    client.metadata(["t"])


def test_mistakes_are_said() -> None:
    with pytest.raises(ValueError, match="security='kerberos' is not known; use one of tls, mtls"):
        Broker(security="kerberos")
    with pytest.raises(RuntimeError, match=r"Broker\(security='scram'\)"):
        Broker().add_user("alice")
    with Broker(security="mtls") as broker:
        with pytest.raises(ValueError, match="have no passwords"):
            broker.add_user("alice", "secret")
        with pytest.raises(ValueError, match="is not an operation"):
            broker.allow("alice", "reed", topic="t")
        with pytest.raises(ValueError, match="cannot be a user's name"):
            broker.add_user("../alice")
        with pytest.raises(ValueError, match="security='oauth'"):
            broker.security.token("alice")
