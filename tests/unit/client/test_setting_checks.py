"""Mistyped keys are refused; those of other clients are passed over."""

from __future__ import annotations

import pytest

from oncelog.client.config import ClientConfig
from oncelog.client.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("securty.protocol", "security.protocol"),
        ("security_protocol", "security.protocol"),
        ("sasl.mecanism", "sasl.mechanism"),
        ("ssl.ca.locaton", "ssl.ca.location"),
        ("request.timeout", "request.timeout.ms"),
        ("bootstrap.server", "bootstrap.servers"),
    ],
)
def test_a_key_that_is_nearly_one_of_ours_is_refused(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} is not a setting; did you mean {meant}\?$"):
        ClientConfig.from_properties({name: "x"})


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "fetch.min.bytes",
        "metadata.max.idle.ms",
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "sasl.oauthbearer.jwks.endpoint.url",
        "socket.connection.setup.timeout.max.ms",
        "socket.receive.buffer.bytes",
        "ssl.keystore.key",
        "ssl.protocol",
        "statistics.interval.ms",
    ],
)
def test_a_key_of_another_client_is_passed_over(name: str) -> None:
    assert ClientConfig.from_properties({name: "x"}) == ClientConfig()
