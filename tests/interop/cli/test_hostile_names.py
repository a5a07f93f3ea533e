"""Every command on a terminal, with names that would act on it. None does, none forges a line, and JSON keeps them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.admin.acls import create_acls
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from oncelog.cli.commands import COMMANDS, load_command
from oncelog.client.blocking import Client, GroupConsumer, GroupSettings
from oncelog.client.blocking.producer import Producer
from oncelog.client.machine.offsets import Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.testing import Broker
from tests.conformance.authorization.corpus import PROPERTIES
from tests.interop.admin.lab import WITHOUT_VERIFICATION, ByHand, at
from tests.terminal import Shown, run_on_terminal

pytestmark = pytest.mark.slow

EVIL = "e\x1b]0;owned\x07\x1b[1A\x9b2J\u202eg\u2066\nFORGED one\rFORGED\x85FORGED\u2028FORGED\x7f\U000e0041"
FILE = "e\x1b[5n\x9b\u202e\nFORGED\udcff"
"""A name on a command line, which may have bytes that are no UTF-8."""
TOPIC = "orders"

COMMANDS_AND_NAMES: dict[str, list[list[str]]] = {
    "serve": [["--listen", FILE], ["-o", FILE], ["--config", FILE], ["-o", f"node.id={FILE}"]],
    "topic create": [[EVIL]],
    "topic list": [[], ["--json"]],
    "topic describe": [[TOPIC], [EVIL], [TOPIC, "--json"]],
    "topic alter": [[EVIL, "--partitions", "9"], [TOPIC, "-c", f"{EVIL}=1"], [TOPIC, "-c", f"retention.ms={EVIL}"]],
    "topic delete": [[EVIL]],
    "topic reassign": [[EVIL, "--brokers", "1"], ["--plan", FILE]],
    "topic elect": [[f"{EVIL}:0"], [EVIL]],
    "cluster up": [["--config", FILE], ["--set", EVIL]],
    "cluster adopt": [[FILE]],
    "cluster status": [[], ["--json"]],
    "cluster decommission": [["9"]],
    "cluster unregister": [["9"]],
    "produce": [[EVIL], [TOPIC, "--header", EVIL], ["--json", EVIL], [TOPIC, FILE]],
    "consume": [
        [TOPIC, "--from", "beginning", "--exit", "-f", "%k %s %h\\n"],
        [TOPIC, "--from", "beginning", "--exit", "--json"],
        [TOPIC, "--exit", "--from", EVIL],
        [EVIL, "--exit"],
        ["--group", EVIL, "--exit", "--no-commit", TOPIC],
        ["--share", EVIL, "--exit", "--count", "1", EVIL],
    ],
    "group list": [[], ["--json"]],
    "group describe": [
        *([EVIL], [EVIL, "--members"], [EVIL, "--json"], [f"{EVIL}-none"]),
        *([EVIL, "--deliveries"], [EVIL, "--configs"]),
    ],
    "group alter": [
        [EVIL, "-c", f"{EVIL}=1"],
        [EVIL, "-c", f"share.isolation.level={EVIL}"],
        [EVIL, "--delete-config", EVIL],
    ],
    "group reset-offsets": [[EVIL, "--topic", TOPIC, "--to-earliest"], [f"{EVIL}2", "--topic", EVIL, "--to-latest"]],
    "group delete": [[f"{EVIL}-none"], [f"{EVIL}-none", "--topic", f"{EVIL}:0"]],
    "group migrate": [[EVIL, "--zookeeper", FILE]],
    "explain cluster": [[], ["--json"], ["--ignore", EVIL]],
    "explain group": [[EVIL], [EVIL, "--json"], [EVIL, "--principal", EVIL], [f"{EVIL}-none"]],
    "explain topic": [[TOPIC], [TOPIC, "--json"], [EVIL]],
    "explain partition": [[TOPIC, "0"], [EVIL, "0"]],
    "explain producer": [["0"], ["0", "--json"], ["4711"]],
    "explain txn": [[EVIL], [EVIL, "--json"], [f"{EVIL}-none"]],
    "console": [["--listen", FILE], ["--schema", FILE], ["--audit-log", FILE, "--listen", "x"]],
    "mirror": [["--source", f"{EVIL}=127.0.0.1:1"], ["--config", FILE]],
    "mirror offsets": [["--source", f"{EVIL}=127.0.0.1:1", "--group", EVIL], ["--config", FILE]],
    "mirror verify": [["--source", f"{EVIL}=127.0.0.1:1"], ["--config", FILE]],
    "acl list": [[], ["--json"], ["--principal", EVIL]],
    "acl allow": [[EVIL, "read", "--group", f"{EVIL}3"], [EVIL, EVIL, "--group", "g"]],
    "acl deny": [[EVIL, "read", "--group", f"{EVIL}4"], [EVIL, "read", "--group", "g", "--host", EVIL]],
    "acl remove": [["--principal", EVIL], ["--group", f"{EVIL}3", "--yes"], ["--principal", EVIL, "--operation", EVIL]],
    "acl explain": [["--group", EVIL, "--principal", EVIL], ["--group", EVIL, "--principal", EVIL, "--json"]],
    "security zookeeper-acl": [["--config", FILE]],
    "security init": [[FILE, "--user", EVIL]],
    "security renew": [[FILE]],
    "security client": [[FILE, EVIL]],
    "security user add": [[EVIL, "--password-file", FILE], [EVIL, "--password-env", "NONE"]],
    "security user list": [[], ["--json"]],
    "security user delete": [[EVIL, "--yes"]],
    "txn find-hanging": [
        ["--min-age-ms", "0", "--all"],
        ["--min-age-ms", "0", "--all", "--json"],
        ["--topic", EVIL],
    ],
    "txn explain": [["--group", EVIL], ["--topic", TOPIC], ["--topic", TOPIC, "--json"], ["--transactional-id", EVIL]],
    "txn abort": [
        ["--topic", TOPIC, "--partition", "1", "--start-offset", "0", "--yes"],
        ["--all-hanging", "--audit-log", FILE + "/x/y", "--yes"],
        ["--topic", EVIL, "--partition", "0", "--start-offset", "0", "--yes"],
    ],
    "txn commit": [
        ["--transactional-id", EVIL, "--producer-id", "0", "--epoch", "0", "--dry-run"],
        ["--transactional-id", f"{EVIL}-none", "--producer-id", "0", "--epoch", "0", "--json"],
        ["--from-flink-checkpoint", FILE],
        ["--from-spark-checkpoint", FILE],
    ],
    "txn force-terminate": [[f"{EVIL}-none", "--yes"], [EVIL]],
    "txn list": [[], ["--json"], ["--state", EVIL], ["--pattern", EVIL]],
    "txn describe": [[EVIL], [EVIL, "--json"], [f"{EVIL}-none"]],
    "txn producers": [[TOPIC], [TOPIC, "--json"], [EVIL]],
    "txn watch": [["--count", "1", "--min-age-ms", "0"], ["--count", "1", "--json"]],
    "log import": [[FILE, "--to", EVIL]],
    "log backup": [[FILE, "--to", FILE], ["DATA", "--to", FILE], [".", "--to", "x", "--since", FILE]],
    "log restore": [[FILE, "--to", FILE]],
    "registry export": [[FILE, "--topic", EVIL]],
    "registry import": [[FILE, "--topic", EVIL]],
    "registry serve": [["--topic", EVIL, "--listen", FILE], ["--auth", "basic", FILE], ["--permissions", FILE]],
    "log dump": [["-r", "DATA"], ["-r", "DATA", "--json"], [FILE]],
    "log verify": [["DATA"], ["DATA", "--json"], [FILE]],
    "sim": [["--fault", EVIL], ["--plan", FILE], ["--replay", FILE]],
    "load": [[EVIL, "--to", FILE], [TOPIC, "--to", FILE, "--from", EVIL]],
    "audit": [[FILE]],
    "stream": [[EVIL, "--to", FILE, "--from", EVIL]],
    "export": [[FILE, EVIL]],
    "compact": [[FILE]],
}
SHOWN: dict[str, int] = {
    "group list": 2,
    "txn list": 2,
    "acl list": 2,
    "txn producers": 2,
    "explain txn": 3,
    "explain cluster": 2,
    "consume": 2,
    "log dump": 2,
}
"""Commands that show the names themselves, the first so many of their cases."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with (
        Broker({**PROPERTIES, **WITHOUT_VERIFICATION}) as broker,
        Client(broker.bootstrap_servers, config={"client.id": EVIL}) as client,
    ):
        create_topic(client, NewTopic(TOPIC, partitions=2, replication_factor=1))
        late = ByHand(client, EVIL)
        late.begin(at(TOPIC))
        with Producer(client) as producer:
            headers = ((EVIL, EVIL.encode()), ("h", b"\xff\x1b[5n"))
            producer.send(TOPIC, EVIL.encode() + b"\xff\x9b", key=EVIL.encode(), partition=0, headers=headers)
            producer.send(TOPIC, EVIL.encode(), key=EVIL.encode(), partition=1, headers=headers)
        for group in (EVIL, f"{EVIL}2"):
            commit_offsets(client, group, {at(TOPIC): Committed(0, metadata=EVIL)})
        commit_offsets(client, f"{EVIL}5", {at(TOPIC, 1): Committed(99)})
        commit_offsets(client, EVIL, {at(TOPIC): Committed(0), at(TOPIC, 1): Committed(99)})
        entry = AclEntry(f"User:{EVIL}", "*", Operation.READ, Permission.ALLOW)
        create_acls(client, [AclBinding(ResourcePattern(ResourceType.GROUP, PatternType.LITERAL, EVIL), entry)])
        yield broker


def paths() -> Iterator[str]:
    """Every command, by the words that call it."""

    def below(path: str, command: Any) -> Iterator[str]:
        if not hasattr(command, "commands") or path == "mirror":
            yield path
        for name, child in getattr(command, "commands", {}).items():
            yield from below(f"{path} {name}", child)

    for name, entry in COMMANDS.items():
        yield from below(name, load_command(name, entry.target))


def test_every_command_is_here() -> None:
    assert sorted(paths()) == sorted(COMMANDS_AND_NAMES)


@pytest.mark.parametrize("command", COMMANDS_AND_NAMES)
def test_nothing_acts_on_the_terminal(
    command: str, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.chdir(tmp_path)
    for number, arguments in enumerate(COMMANDS_AND_NAMES[command]):
        given = [str(broker.data_dir / f"{TOPIC}-1") if argument == "DATA" else argument for argument in arguments]
        shown = run_on_terminal([*command.split(), *given], stdin=EVIL.encode() + b"\n")
        _check(shown, values=command == "consume")
        if number < SHOWN.get(command, 0):
            assert "FORGED" in shown.text, arguments
        if "--json" in arguments and shown.code == 0 and shown.text[:1] in "[{" and number < SHOWN.get(command, 0):
            assert EVIL in _texts(shown.text)


def _check(shown: Shown, *, values: bool = False) -> None:
    assert shown.act_on_terminal() == []
    if not values:  # those of records may have several lines
        assert not [line for line in shown.text.split("\n") if line.lstrip().startswith("FORGED")]
    assert "Traceback" not in shown.text


def _texts(document: str) -> list[str]:
    """All strings of JSON, in one document or in one for each line."""
    try:
        values = [json.loads(document)]
    except ValueError:
        values = [json.loads(line) for line in document.splitlines()]
    results: list[str] = []
    while values:
        value = values.pop()
        if isinstance(value, str):
            results.append(value)
        elif isinstance(value, list):
            values += value
        elif isinstance(value, dict):
            values += [*value, *value.values()]
    return results


def test_members_of_a_group(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELOG_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    settings = GroupSettings(instance_id=EVIL)
    with (
        Client(broker.bootstrap_servers, config={"client.id": EVIL}) as client,
        GroupConsumer(client, f"{EVIL}-live", [TOPIC], settings=settings) as member,
    ):
        deadline = time.monotonic() + 30
        while not member.assignment and time.monotonic() < deadline:
            member.poll(0.1)
        for more in ([], ["--members"], ["--json"]):
            shown = run_on_terminal(["group", "describe", f"{EVIL}-live", *more])
            _check(shown)
            assert "FORGED" in shown.text
