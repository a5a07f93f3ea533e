"""Listeners that let in anybody from other hosts are warned of, or refused."""

from __future__ import annotations

import pytest

from oncelog.core.configs.kinds import ConfigError
from oncelog.node.listeners.broker_settings import read_settings

INSIDE = {
    "inter.broker.listener.name": "INSIDE",
    "listeners": "INSIDE://127.0.0.1:9091,",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
PROTOCOLS = "INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"


def warnings(listener: str, **keys: str) -> int:
    more = {key.replace("_", "."): text for key, text in keys.items()}
    config = {"listener.security.protocol.map": PROTOCOLS, "sasl.enabled.mechanisms": "SCRAM-SHA-256", **INSIDE, **more}
    config["listeners"] += listener
    settings = read_settings(config)
    return sum("without authentication" in warning for warning in settings.warnings)


@pytest.mark.parametrize(
    ("listener", "client_auth", "exposed"),
    [
        ("PLAINTEXT://:9092", "none", True),
        ("PLAINTEXT://0.0.0.0:9092", "none", True),
        ("PLAINTEXT://log.example:9092", "none", True),
        ("PLAINTEXT://localhost:9092", "none", False),
        ("PLAINTEXT://[::1]:9092", "none", False),
        ("SSL://:9092", "none", True),
        ("SSL://:9092", "requested", True),
        ("SSL://:9092", "required", False),
        ("SASL_PLAINTEXT://:9092", "none", False),
        ("SASL_SSL://:9092", "none", False),
    ],
)
def test_a_listener_that_lets_in_anybody(listener: str, client_auth: str, exposed: bool) -> None:
    assert warnings(listener, ssl_client_auth=client_auth) == exposed
    if exposed:
        with pytest.raises(ConfigError, match=r"oncelog.require.security=true: listener"):
            warnings(listener, ssl_client_auth=client_auth, oncelog_require_security="true")
    else:
        assert not warnings(listener, ssl_client_auth=client_auth, oncelog_require_security="true")
