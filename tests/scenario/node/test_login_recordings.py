"""No secret is in a flight recording, whichever way it came into the broker."""

from __future__ import annotations

import base64
import json

import pytest

from oncelog.base.tree import TreeNode
from oncelog.core.controller.image import layout
from oncelog.node.access.redaction import redacted_value
from oncelog.node.observation.flight_recorder import FlightRecorder, RecordedNode, read_recording
from oncelog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.scenario.node.driver import START_MS
from tests.scenario.node.logins import LISTENER, handshake, log_in, log_in_by_scram, plain, secured
from tests.scenario.node.requests import BROKER

SALTED = b"salted-password-of-carol"
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


@pytest.fixture
def recorded():
    """A driver whose node is recorded, and the lines."""
    driver = secured(**{"connections.max.reauth.ms": "60000"})
    lines: list[bytes] = []
    recorder = FlightRecorder(lines.append, 10_000_000)
    recorder.begin(driver.config.without_secrets(), {LISTENER: ("h", 1)}, START_MS, driver.session.subtree("/"), [])
    driver.node = RecordedNode(driver.node, recorder)
    return driver, lines


def everything(lines: list[bytes]) -> bytes:
    """All bytes of a recording, also those in base64, twice over."""
    data = b"".join(lines)
    for line in lines:
        for text in _texts(json.loads(line)):
            try:
                data += base64.b64decode(text, validate=True)
            except ValueError:
                data += text.encode()
    return data


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in _texts(part)]


def test_logins_are_withheld_and_what_follows_is_not(recorded):
    driver, lines = recorded
    log_in(driver.connect(LISTENER))
    peer = driver.connect(LISTENER)
    handshake(peer, "PLAIN", 0)
    peer.raw = True
    peer.send_frame(plain("alice", "alice-secret"))
    peer.raw = False
    assert log_in_by_scram(driver.connect(LISTENER), "nobody", "nobodys-secret") is None
    data = everything(lines)
    for secret in (b"alice-secret", b"bob-secret", b"n=nobody", b",p="):
        assert secret not in data
    withheld = [moment.withheld for moment in read_recording(lines).moments]
    assert withheld.count(True) == 4
    assert withheld[0] is False


def test_a_token_behind_a_handshake_that_waits_is_withheld(recorded):
    """The second frame arrives before the first is decided: nobody knows yet that it is a token."""
    driver, lines = recorded
    peer = driver.connect(LISTENER)
    log_in(peer)
    driver.hold_metadata = True
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    peer.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    peer.send(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    peer.send_frame(plain("alice", "alice-secret"))
    assert b"alice-secret" not in everything(lines)


def test_credentials_and_sensitive_configs_are_hidden_but_not_the_rest(recorded):
    driver, lines = recorded
    peer = driver.connect()
    upsertion = ScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=b"salt-of-carol", salted_password=SALTED
    )
    response = peer.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    assert [result.error_code for result in response.results] == [0]
    configs = [
        AlterableConfig(name=JAAS, config_operation=0, value='x required user_a="jaas-secret";'),
        AlterableConfig(name="ssl.keystore.password", config_operation=0, value="store-secret"),
        AlterableConfig(name="log.retention.ms", config_operation=0, value="987654"),
    ]
    peer.send(
        IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=configs)]
        ),
        1,
    )
    data = everything(lines)
    for secret in (SALTED, b"salt-of-carol", b"stored_key", b"jaas-secret", b"store-secret"):
        assert secret not in data
    assert b"carol" in data
    assert b"987654" in data


def test_a_frame_that_cannot_be_read_is_not_recorded_where_it_might_hold_a_secret(recorded):
    driver, lines = recorded
    driver.connect().send_frame(AlterUserScramCredentialsRequest.API_KEY.to_bytes(2, "big") + b"\0\0secret")
    driver.connect().send_frame(SaslAuthenticateRequest.API_KEY.to_bytes(2, "big") + b"\0\0secret")
    assert b"secret" not in everything(lines)


def test_values_of_the_tree_are_hidden():
    node = TreeNode(layout.LOGIN_SECRET, b"secret", 0)
    assert redacted_value(node.path, node.value) == b"hidden"
    configs = layout.config_value({"SCRAM-SHA-256": "salt=x", "producer_byte_rate": "7"})
    assert redacted_value(f"{layout.USER_CONFIGS}/alice", configs) == layout.config_value(
        {"SCRAM-SHA-256": "hidden", "producer_byte_rate": "7"}
    )
    configs = layout.config_value({JAAS: "x", "my.secret": "y", "log.retention.ms": "7"})
    assert redacted_value(f"{layout.BROKER_CONFIGS}/1", configs) == layout.config_value(
        {JAAS: "hidden", "my.secret": "hidden", "log.retention.ms": "7"}
    )
    assert redacted_value("/brokers/ids/1", b"{}") == b"{}"
    assert redacted_value(layout.LOGIN_SECRET, None) is None
