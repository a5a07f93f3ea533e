"""Configuration keys of `oncelog serve` from environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.cli.processes.broker_process import EXIT_REFUSED, read_values, run_broker, values_of_environment
from oncelog.node.assembly import StartRefused


def test_variables_are_keys_as_for_the_image_of_apache_kafka() -> None:
    environ = {
        "KAFKA_NODE_ID": " 7 ",
        "KAFKA_LISTENER_NAME_SASL__SSL_SSL_KEYSTORE_LOCATION": "/k",
        "KAFKA_A___B____C": "x",
        "KAFKA_": "nothing",
        "NOT_KAFKA_NODE_ID": "8",
        "kafka_node_id": "9",
    }
    assert values_of_environment(environ, "KAFKA_") == {
        "node.id": "7",
        "listener.name.sasl_ssl.ssl.keystore.location": "/k",
        "a-b-.c": "x",
    }


def test_an_option_wins_over_a_variable_and_a_variable_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nnum.partitions=1\nlog.retention.hours=1\n", "utf-8")
    monkeypatch.setenv("KAFKA_NODE_ID", "2")
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "2")
    values = read_values(path, "KAFKA_", ["num.partitions=3"])
    assert values == {"node.id": "2", "num.partitions": "3", "log.retention.hours": "1"}
    assert read_values(path, None, [])["node.id"] == "1"


def test_an_empty_prefix_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StartRefused, match="--env-prefix is empty"):
        read_values(None, "", [])
    assert run_broker(env_prefix="") == EXIT_REFUSED
    assert "such as KAFKA_" in capsys.readouterr().err
