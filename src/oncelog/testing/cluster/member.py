"""One broker of an in-process cluster: ``testing.Broker``, a shared coordination tree and a network that can be cut."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from oncelog.coordination.memory import MemorySession, MemoryTree
from oncelog.node.cluster.metadata import Metadata
from oncelog.node.kernel.events import StoodStill
from oncelog.runtime.effects.broker_sockets import Dispatch
from oncelog.runtime.server import Server
from oncelog.testing.broker import Broker
from oncelog.testing.cluster.network import CuttableSockets

if TYPE_CHECKING:
    from oncelog.testing.security.security import Security


class Member(Broker):
    def __init__(
        self,
        broker_id: int,
        tree: MemoryTree,
        config: Mapping[str, str],
        data_dir: Path,
        cut: Callable[[int], list[int]],
        security: Security | None = None,
        *,
        virtual_time: bool = False,
    ) -> None:
        super().__init__({**config, "node.id": str(broker_id)}, data_dir=data_dir, virtual_time=virtual_time)
        self.broker_id = broker_id
        self._security = security  # the cluster's
        self._owns_security = False
        self._tree = tree
        self._ports_cut = cut
        self._session: MemorySession | None = None
        self._sockets: CuttableSockets | None = None
        self._thawed: threading.Event | None = None

    @property
    def is_frozen(self) -> bool:
        return self._thawed is not None

    def metadata(self) -> Metadata | None:
        """The broker's view of the cluster, or None while it is down or frozen."""
        server = self._server
        if server is None or self.is_frozen or not self.is_running:
            return None
        return server.node.cluster

    def freeze(self) -> None:
        """Freeze the broker, like SIGSTOP: its sockets stay open, but it does not respond."""
        if self.is_frozen or self._loop is None:
            raise RuntimeError(f"broker {self.broker_id} is already frozen, or down")
        frozen, thawed, server, frozen_at_s = threading.Event(), threading.Event(), self._server, time.monotonic()

        def stand_still() -> None:
            frozen.set()
            thawed.wait()
            if server is not None:  # like a process that notices the elapsed time
                server.effect_runner.dispatch(StoodStill(int(1_000 * (time.monotonic() - frozen_at_s))))

        self._loop.begin(stand_still)
        self._thawed = thawed
        frozen.wait()

    def thaw(self) -> None:
        thawed, self._thawed = self._thawed, None
        if thawed is not None:
            thawed.set()

    def kill(self) -> None:
        """Kill the broker like ``kill -9``, even while it is frozen."""
        server, thawed = self._server, self._thawed
        if server is not None and thawed is not None and self._loop is not None:
            self._loop.begin(server.halt)
        self.thaw()
        super().kill()

    def expire_session(self) -> None:
        if self._session is not None:
            self._tree.end_session(self._session.session_id)

    def advance(self, milliseconds: int) -> None:
        # Move the clock forward. A broker that is frozen or down notices when it continues.
        if self.is_running and not self.is_frozen:
            super().advance(milliseconds)
        elif self._clock is not None:
            self._clock.move_to(self._clock.now_ms() + milliseconds)

    def set_cut(self, ports: Iterable[int]) -> None:
        # Returns when the broker obeys the cut, or no test could tell what still passed. A frozen one obeys on thawing.
        sockets, cut = self._sockets, list(ports)
        if sockets is not None and self._loop is not None and self.is_running:
            obey = self._loop.begin if self.is_frozen else self._loop.run
            obey(lambda: sockets.set_cut(cut))

    def _new_server(self, bound: Mapping[str, socket.socket]) -> Server:
        self._session = session = self._tree.session()

        def make_sockets(loop: asyncio.AbstractEventLoop, dispatch: Dispatch) -> CuttableSockets:
            self._sockets = CuttableSockets(loop, dispatch, self._ports_cut(self.broker_id))
            return self._sockets

        return Server(
            self._settings(),
            clock=self._clock,
            bound=bound,
            assembled=self._add_hooks,
            coordination=session,
            sockets=make_sockets,
        )
