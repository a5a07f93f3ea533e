"""franz-go, sarama, kafka-go and KafkaJS, from their own registries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncelog.testing import Broker
from tests.peers.clients import foreign
from tests.peers.clients.scenario import Scenario

pytestmark = pytest.mark.slow
_GO = {**foreign.FRANZ_GO, **foreign.SARAMA, **foreign.KAFKA_GO}


@pytest.mark.peer("go")
@pytest.mark.parametrize("scenario", list(_GO.values()), ids=list(_GO))
def test_a_go_client_sees_what_it_expects(scenario: Scenario, broker: Broker) -> None:
    scenario(broker.bootstrap_servers)


@pytest.mark.peer("kafkajs")
@pytest.mark.parametrize("scenario", list(foreign.KAFKAJS.values()), ids=list(foreign.KAFKAJS))
def test_kafkajs_sees_what_it_expects(scenario: Scenario, broker: Broker) -> None:
    scenario(broker.bootstrap_servers)


KINDS = {"scram": ("SCRAM-SHA-256", "SCRAM-SHA-512"), "plain": ("PLAIN",), "oauth": ("OAUTHBEARER",), "mtls": ("",)}
PASSWORD = 'hush "quoted" ü'


@pytest.fixture(scope="module", params=list(KINDS))
def secured(request: pytest.FixtureRequest) -> Iterator[tuple[Broker, str]]:
    """A broker with TLS and one user, who may do everything, and what kind of security it has."""
    with Broker(security=request.param) as broker:
        broker.add_user("alice", PASSWORD if request.param in ("scram", "plain") else None)
        broker.allow("alice")
        yield broker, request.param


@pytest.mark.parametrize(
    "client",
    [pytest.param(name, marks=pytest.mark.peer("kafkajs" if name == "kafkajs" else "go")) for name in foreign.LOGINS],
)
def test_a_client_logs_in_and_is_told_of_a_wrong_login(client: str, secured: tuple[Broker, str]) -> None:
    broker, kind = secured
    config = broker.client_config("alice")
    security = {"User": "alice", "Password": PASSWORD, "CA": str(broker.security.ca_file)}
    if kind == "mtls":
        security["Certificate"] = config["ssl.certificate.location"]
    if kind == "oauth":
        security["Token"] = broker.security.token("alice")
    for mechanism in KINDS[kind]:
        foreign.LOGINS[client](broker.bootstrap_servers, {**security, "Mechanism": mechanism})
