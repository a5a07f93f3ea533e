"""Commands that are suggested do what they say for names made of anything: read by a shell, and by our command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oncelog.admin.transactions.abort_marker import refusal
from oncelog.admin.transactions.partition_offsets import Bounds
from oncelog.admin.transactions.report import Held, commands
from oncelog.base.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from oncelog.cli.acl.options import command_for
from oncelog.cli.support.named_cluster import cluster_options
from tests.shell import parsed
from tests.unit.admin.transactions.samples import HANGING, LIVE, SUSPECTED
from tests.unit.base.test_shell_words import HOSTILE, NAMES

IDS = [name for name in (*NAMES, *HOSTILE) if name and "\udcff" not in name]
CLUSTER = cluster_options("-kafka:9092", None, Path("-a b/client\n.properties"))


def as_parsed(bootstrap: object, config: object) -> None:
    assert bootstrap == "-kafka:9092"
    assert str(config) == "-a b/client\n.properties"


@pytest.mark.parametrize("name", IDS)
def test_ending_a_transaction(name: str) -> None:
    told = refusal(replace(LIVE, transactional_id=name), options=CLUSTER)
    assert told is not None
    params = parsed("oncelog" + told.partition("now: oncelog")[2].partition(" (--force")[0])
    assert params["transactional_id"] == name
    as_parsed(params["bootstrap"], params["command_config"])


@pytest.mark.parametrize("topic", ["-t", "orders", "--all"])
def test_looking_into_a_topic(topic: str) -> None:
    for one, option in ((HANGING, "topic"), (SUSPECTED, "topics")):
        held = replace(one, producer=replace(one.producer, topic=topic))
        (command,) = commands(Held(held.topic_partition, Bounds(100, 200), (held,)), CLUSTER)
        result = parsed(command)[option]
        assert topic in ([result] if isinstance(result, str) else result)


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("verb", ["allow", "remove"])
def test_access_control_lists(verb: str, name: str) -> None:
    pattern = ResourcePattern(ResourceType.GROUP, PatternType.LITERAL, name)
    entry = AclEntry(f"User:{name}", name, Operation.READ, Permission.ALLOW)
    params = parsed(command_for(verb, AclBinding(pattern, entry)))
    texts = str(params)
    assert repr(name) in texts
    assert repr(f"User:{name}") in texts
