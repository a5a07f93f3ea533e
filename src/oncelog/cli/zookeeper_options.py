"""Options of the commands that ask a cluster's ZooKeeper, and the settings that they stand for."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from oncelog.client.machine.zookeeper_group.subscription import Subscription


class StorageName(Enum):
    """The values of ``offsets.storage``."""

    zookeeper = "zookeeper"
    kafka = "kafka"


ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper", metavar="HOST:PORT,…/CHROOT", help="Work as Kafka's old consumers do, through ZooKeeper."
    ),
]
OffsetsStorage = Annotated[
    StorageName | None, typer.Option("--offsets-storage", help="With --zookeeper: where the group's offsets are kept.")
]
DualCommit = Annotated[
    bool | None,
    typer.Option("--dual-commit/--no-dual-commit", help="With --zookeeper: keep them in both (default: with kafka)."),
]
WhiteList = Annotated[
    str | None, typer.Option("--whitelist", metavar="REGEX", help="With --zookeeper: all topics of such a name.")
]
BlackList = Annotated[
    str | None, typer.Option("--blacklist", metavar="REGEX", help="With --zookeeper: all topics of other names.")
]


def storage_settings(storage: StorageName | None, dual_commit: bool | None) -> dict[str, str]:
    """The keys that the options stand for."""
    settings = {} if storage is None else {"offsets.storage": storage.value}
    return settings if dual_commit is None else settings | {"dual.commit.enabled": str(dual_commit).lower()}


def subscription(topics: list[str], white_list: str | None, black_list: str | None) -> Subscription:
    """The subscription to topics or to the one filter that is given. Raises BadParameter for none, and for several."""
    from oncelog.client.machine.zookeeper_group.subscription import Subscription

    if (bool(topics), white_list is not None, black_list is not None).count(True) != 1:
        raise typer.BadParameter("name topics, or give one of --whitelist and --blacklist")
    expression = white_list if black_list is None else black_list
    if expression is None:
        return Subscription.to_topics(dict.fromkeys(topics))
    return Subscription.to_filter(expression, black_list=black_list is not None)
