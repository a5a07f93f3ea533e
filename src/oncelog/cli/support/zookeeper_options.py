"""Options of the commands that use a cluster's ZooKeeper, and the settings they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from oncelog.client.zookeeper import Subscription


class StorageName(Enum):
    """The values of ``offsets.storage``."""

    zookeeper = "zookeeper"
    kafka = "kafka"


@dataclass(frozen=True)
class ZooKeeperOptions:
    """A consumer that works as Kafka's old ones do."""

    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper", metavar="HOST:PORT,…/CHROOT", help="Work as Kafka's old consumers do, through ZooKeeper."
        ),
    ] = None
    white_list: Annotated[
        str | None, typer.Option("--whitelist", metavar="REGEX", help="With --zookeeper: all topics of such a name.")
    ] = None
    black_list: Annotated[
        str | None, typer.Option("--blacklist", metavar="REGEX", help="With --zookeeper: all topics of other names.")
    ] = None
    storage: Annotated[
        StorageName | None,
        typer.Option("--offsets-storage", help="With --zookeeper: where the group's offsets are kept."),
    ] = None
    dual_commit: Annotated[
        bool | None,
        typer.Option(
            "--dual-commit/--no-dual-commit", help="With --zookeeper: keep them in both (default: with kafka)."
        ),
    ] = None

    def settings(self) -> dict[str, str]:
        """The keys of a consumer's properties."""
        settings = {} if self.storage is None else {"offsets.storage": self.storage.value}
        if self.dual_commit is not None:
            settings["dual.commit.enabled"] = str(self.dual_commit).lower()
        return settings

    def subscription(self, topics: list[str]) -> Subscription:
        """The subscription to topics or a filter. Raises BadParameter for none or several."""
        from oncelog.client.zookeeper import Subscription

        if (bool(topics), self.white_list is not None, self.black_list is not None).count(True) != 1:
            raise typer.BadParameter("name topics, or give one of --whitelist and --blacklist")
        expression = self.white_list if self.black_list is None else self.black_list
        if expression is None:
            return Subscription.to_topics(dict.fromkeys(topics))
        return Subscription.to_filter(expression, black_list=self.black_list is not None)
