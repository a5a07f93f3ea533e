"""``oncelog acl`` and Apache Kafka's ``kafka-acls`` against our broker and Apache Kafka."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from oncelog.cli.commands import run_command
from oncelog.testing import Broker
from tests.conformance.authorization.corpus import PROPERTIES
from tests.conformance.authorization.record import secured
from tests.peers.apache_kafka import KafkaTools

pytestmark = pytest.mark.slow


@pytest.fixture(params=["oncelog", pytest.param("apache-kafka", marks=pytest.mark.java)])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker with an authorizer, whose anonymous connections are super users."""
    if request.param == "oncelog":
        with Broker(PROPERTIES) as broker:
            yield broker.bootstrap_servers
    else:
        kafka, _ = secured()
        with kafka:
            yield kafka.bootstrap_servers


def run(capsys: pytest.CaptureFixture[str], bootstrap: str, *arguments: str, code: int = 0) -> str:
    assert run_command(["acl", *arguments, "-b", bootstrap]) == code
    return capsys.readouterr().out


def test_a_life_of_entries(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, bootstrap, "allow", "alice", "read", "describe", "--topic", "orders", "--group", "billing")
    run(capsys, bootstrap, "allow", "User:app", "all", "--topic", "or", "--prefix", "--host", "10.0.0.7")
    run(capsys, bootstrap, "deny", "*", "delete", "--topic", "*")
    decoded = json.loads(run(capsys, bootstrap, "list", "--json"))
    assert len(decoded) == 6
    assert decoded[0] == {
        "pattern": {"resource_type": "TOPIC", "pattern_type": "LITERAL", "name": "*"},
        "entry": {"principal": "User:*", "host": "*", "operation": "DELETE", "permission": "DENY"},
    }
    assert len(json.loads(run(capsys, bootstrap, "list", "--topic", "orders", "--match", "--json"))) == 4
    assert len(json.loads(run(capsys, bootstrap, "list", "--principal", "alice", "--json"))) == 4
    shown = run(capsys, bootstrap, "explain", "--topic", "orders", "--principal", "alice")
    assert re.search(r"read +yes +User:alice is allowed read on topic orders", shown)
    assert re.search(r"delete +no +User:\* is denied delete on topic \*", shown)
    assert "oncelog acl allow User:alice write --topic orders" in shown
    assert "oncelog acl remove --principal 'User:*' --operation delete --topic '*' --deny" in shown
    assert "Entries for single hosts count only with --host." in shown
    shown = run(capsys, bootstrap, "explain", "--topic", "orders", "--principal", "ANONYMOUS")
    assert ("a super user may do everything" in shown) != ("do not tell who their super users are" in shown)
    options = ("--topic", "orders", "--principal", "app", "--operation", "write")
    run(capsys, bootstrap, "explain", *options, code=1)
    shown = run(capsys, bootstrap, "explain", *options, "--host", "10.0.0.7")
    assert "User:app from 10.0.0.7 is allowed all on topic or…" in shown
    run(capsys, bootstrap, "remove", "--topic", "orders", "--principal", "alice")
    assert len(json.loads(run(capsys, bootstrap, "list", "--json"))) == 6, "without --yes nothing is removed"
    removed = json.loads(run(capsys, bootstrap, "remove", "--topic", "orders", "--principal", "alice", "-y", "--json"))
    assert [item["entry"]["operation"] for item in removed["removed"]] == ["READ", "DESCRIBE"]
    assert len(json.loads(run(capsys, bootstrap, "list", "--json"))) == 4


def _tool(tools: KafkaTools, *arguments: str) -> list[str]:
    """The output of a run, with the entries of each list in an order: no broker promises one."""
    done = tools.run("kafka-acls", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    blocks = re.split(r"\n(?=\S)", done.stdout.strip())
    return sorted("\n".join(sorted(block.splitlines())) for block in blocks)


ACTIONS = (
    ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--operation", "Describe", "--topic", "orders"),
    ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders"),
    ("--add", "--allow-principal", "User:p", "--producer", "--topic", "or", "--resource-pattern-type", "prefixed"),
    ("--add", "--allow-principal", "User:c", "--consumer", "--topic", "orders", "--group", "*"),
    ("--add", "--deny-principal", "User:m", "--deny-host", "10.0.0.9", "--operation", "All", "--cluster"),
    ("--add", "--allow-principal", "User:t", "--operation", "TwoPhaseCommit", "--transactional-id", "x"),
    ("--list",),
    ("--list", "--topic", "orders", "--resource-pattern-type", "match"),
    ("--list", "--principal", "User:alice"),
    ("--remove", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders", "--force"),
    ("--remove", "--topic", "or", "--resource-pattern-type", "prefixed", "--force"),
    ("--list",),
)


@pytest.mark.java
def test_kafka_acls_prints_the_same_against_both() -> None:
    kafka, _ = secured()
    with kafka, Broker(PROPERTIES) as broker:
        for action in ACTIONS:
            theirs = _tool(KafkaTools(kafka.bootstrap_servers), *action)
            assert _tool(KafkaTools(broker.bootstrap_servers), *action) == theirs, action
