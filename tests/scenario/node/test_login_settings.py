"""Settings of logins, changed while the broker runs."""

from __future__ import annotations

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.scenario.node.driver import Driver
from tests.scenario.node.logins import LISTENER, log_in, refused_after_the_delay, secured


@pytest.fixture
def driver() -> Driver:
    return secured()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('org.apache.kafka.common.security.plain.PlainLoginModule required user_eve="hush"', "semicolon"),
        ('org.apache.kafka.common.security.scram.ScramLoginModule required username="hush";', "PLAIN takes"),
        ("hush", "control flag"),
    ],
)
def test_a_login_line_that_could_not_be_used_is_not_taken(driver: Driver, line: str, reason: str) -> None:
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    change = AlterableConfig(name=key, value=line)
    for name in ("1", ""):
        resource = AlterConfigsResource(resource_type=4, resource_name=name, configs=[change])
        [result] = driver.connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert reason in result.error_message
        assert "hush" not in result.error_message
    assert log_in(driver.connect(LISTENER)).error_code == 0


@pytest.mark.parametrize("before_the_first_login", [True, False])
def test_a_listener_keeps_its_mechanisms_until_a_restart(driver: Driver, before_the_first_login: bool) -> None:
    if not before_the_first_login:
        assert log_in(driver.connect(LISTENER)).error_code == 0
    change = AlterableConfig(name="sasl.enabled.mechanisms", value="SCRAM-SHA-256")
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    [result] = driver.connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == 0
    assert log_in(driver.connect(LISTENER)).error_code == 0
    driver.crash_and_restart(1)
    peer = driver.connect(LISTENER)
    peer.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert refused_after_the_delay(driver, peer).mechanisms == ["SCRAM-SHA-256"]


@pytest.mark.parametrize(("value", "operation"), [("GSSAPI", 0), ("SCRAM-SHA-256,GSSAPI", 0), ("", 0), ("GSSAPI", 2)])
def test_mechanisms_by_which_nobody_could_log_in_after_a_restart_are_not_taken(
    driver: Driver, value: str, operation: int
) -> None:
    change = AlterableConfig(name="sasl.enabled.mechanisms", value=value, config_operation=operation)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[change])
    [result] = driver.connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "is not supported" in result.error_message
