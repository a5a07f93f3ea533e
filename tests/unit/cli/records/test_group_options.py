"""The options of ``oncelog consume`` for groups, and which exclude each other."""

from __future__ import annotations

import pytest
import typer

from oncelog.cli.records.consume import GroupOptions, GroupProtocolName
from oncelog.client.machine.group import GroupSettings
from oncelog.client.programs.group_protocol import Subscription


def test_options_of_a_group_are_a_subscription() -> None:
    assert GroupOptions().subscription(["t"]) is None
    assert GroupOptions("g", instance_id="i").subscription(["t"]) == Subscription(
        "g", ["t"], settings=GroupSettings(instance_id="i")
    )
    options = GroupOptions("g", protocol=GroupProtocolName.consumer, include="t.*")
    assert options.subscription([]) == Subscription("g", [], "t.*", "consumer")


@pytest.mark.parametrize(
    ("options", "topics", "message"),
    [
        (GroupOptions(), [], "name the topics to read"),
        (GroupOptions("g"), [], "name the topics to read, or give --include"),
        (GroupOptions(include="t"), [], "--include and --group-protocol belong to a group"),
        (GroupOptions(protocol=GroupProtocolName.consumer), ["t"], "belong to a group"),
        (GroupOptions("g", protocol=GroupProtocolName.classic, include="t"), [], "a pattern needs the group protocol"),
    ],
)
def test_options_that_exclude_each_other_are_refused(options: GroupOptions, topics: list[str], message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        options.subscription(topics)
