"""The network between the brokers of an in-process cluster, where pairs of brokers can be cut off from each other.

A cut is one that drops packets: what is sent does not arrive, connections neither break nor come about, and nobody is
told. When it heals, what was held back arrives, as TCP sends again. Every connection between two brokers is one that
one of them has made, so it is enough to hold what passes there, both ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from oncelog.node.events import ConnectToBroker, DisconnectFromBroker, SendToBroker
from oncelog.runtime.broker_links import BrokerSockets, Dispatch


class CuttableSockets(BrokerSockets):
    """The connections of one broker to others. Used on the broker's loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dispatch: Dispatch, cut: Iterable[int]) -> None:
        super().__init__(loop, dispatch)
        self._cut = set(cut)
        """The ports of the brokers that cannot be reached."""
        self._ports: dict[int, int] = {}
        self._held: dict[int, list[Callable[[], None]]] = {}
        """By link: what will happen to it when its cut heals, in order."""

    def set_cut(self, ports: Iterable[int]) -> None:
        """Let exactly the brokers at these ports be out of reach."""
        self._cut = set(ports)
        for link_id in list(self._held):
            if not self._is_cut(link_id):
                for call in self._held.pop(link_id):
                    call()

    def connect(self, effect: ConnectToBroker) -> None:
        """Begin to connect, now or when the cut heals."""
        self._ports[effect.link_id] = effect.port
        self._pass_or_hold(effect.link_id, lambda: super(CuttableSockets, self).connect(effect))

    def send(self, effect: SendToBroker) -> None:
        """Send, now or when the cut heals."""
        self._pass_or_hold(effect.link_id, lambda: super(CuttableSockets, self).send(effect))

    def disconnect(self, effect: DisconnectFromBroker) -> None:
        """End a connection on this side; what is held of it never arrives."""
        self._forget(effect.link_id)
        super().disconnect(effect)

    def made(self, link_id: int, transport: asyncio.Transport) -> None:
        """A connection came about, before the cut or in spite of it: the broker hears of it when it heals."""
        self._pass_or_hold(link_id, lambda: super(CuttableSockets, self).made(link_id, transport))

    def received(self, link_id: int, data: memoryview) -> None:
        """Bytes have arrived; the broker sees them now or when the cut heals."""
        if not self._is_cut(link_id):
            super().received(link_id, data)
            return
        kept = memoryview(bytes(data))
        self._hold(link_id, lambda: super(CuttableSockets, self).received(link_id, kept))

    def lost(self, link_id: int) -> None:
        """A connection has ended: a cut hides that, too."""

        def tell() -> None:
            self._forget(link_id)
            super(CuttableSockets, self).lost(link_id)

        self._pass_or_hold(link_id, tell)

    def _is_cut(self, link_id: int) -> bool:
        return self._ports.get(link_id) in self._cut

    def _pass_or_hold(self, link_id: int, call: Callable[[], None]) -> None:
        if self._is_cut(link_id):
            self._hold(link_id, call)
        else:
            call()

    def _hold(self, link_id: int, call: Callable[[], None]) -> None:
        self._held.setdefault(link_id, []).append(call)

    def _forget(self, link_id: int) -> None:
        self._held.pop(link_id, None)
        self._ports.pop(link_id, None)
