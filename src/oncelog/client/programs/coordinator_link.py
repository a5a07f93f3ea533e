"""A group member's connection to its coordinator: heartbeats and joins must not wait behind other requests."""

from __future__ import annotations

import contextlib
from typing import Any

from oncelog.client.errors import ClientError
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.steps import Link, Program, call
from oncelog.wire.message import Request


class CoordinatorLink:
    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._link: Link | None = None

    def open(self) -> Program[Link]:
        """The connection to the coordinator as it is known now. Raises ClientError."""
        broker = yield from self._cluster.coordinator(self._group)
        info = self._cluster.view.brokers.get(broker)
        link = self._link
        if link is None or not link.is_open or info is None or info.address != link.address:
            self.close()
            link = self._link = yield from self._cluster.connect(broker)
        return link

    def forget(self) -> None:
        """Look the coordinator up again: it may have moved."""
        self._cluster.forget_coordinator(self._group)

    def say(self, goodbye: Request[Any] | None) -> Program[None]:
        """Raises ClientError."""
        if goodbye is not None:
            link = yield from self.open()
            yield from call(link, goodbye)

    def say_if_reachable(self, goodbye: Request[Any] | None) -> Program[None]:
        # Otherwise the session time-out does it.
        with contextlib.suppress(ClientError):
            yield from self.say(goodbye)

    def close(self) -> None:
        if self._link is not None:
            self._link.abort()
