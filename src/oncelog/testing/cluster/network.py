"""The network between the brokers of an in-process cluster, where pairs of brokers can be cut off from each other.

A cut is one that drops packets: what is sent does not arrive, connections neither break nor come about, and nobody is
told. When it heals, what was held back arrives, as TCP sends again. Every connection between two brokers is one that
one of them has made, so it is enough to hold what passes there, both ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace

from oncelog.node.kernel.events import (
    BrokerConnected,
    BrokerDisconnected,
    BrokerSent,
    ConnectToBroker,
    DisconnectFromBroker,
    Event,
    SendToBroker,
)
from oncelog.runtime.effects.broker_sockets import BrokerSockets, Dispatch


class CuttableSockets(BrokerSockets):
    """The connections of one broker to others. Used on the broker's loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dispatch: Dispatch, cut: Iterable[int]) -> None:
        super().__init__(loop, self._tell)
        self._node = dispatch
        self._cut = set(cut)
        """The ports of the brokers that cannot be reached."""
        self._ports: dict[int, int] = {}
        self._held: dict[int, list[Callable[[], None]]] = {}
        """Events of each link that wait until its cut heals, in order."""

    def set_cut(self, ports: Iterable[int]) -> None:
        """Let exactly the brokers at these ports be out of reach."""
        self._cut = set(ports)
        for link_id in list(self._held):
            if not self._is_cut(link_id):
                for happen in self._held.pop(link_id, ()):
                    happen()

    def connect(self, effect: ConnectToBroker) -> None:
        """Begin to connect, now or when the cut heals."""
        self._ports[effect.link_id] = effect.port
        self._now_or_later(effect.link_id, lambda: super(CuttableSockets, self).connect(effect))

    def send(self, effect: SendToBroker) -> None:
        """Send, now or when the cut heals."""
        self._now_or_later(effect.link_id, lambda: super(CuttableSockets, self).send(effect))

    def disconnect(self, effect: DisconnectFromBroker) -> None:
        """End a connection on this side; what is held of it never arrives."""
        self._held.pop(effect.link_id, None)
        self._ports.pop(effect.link_id, None)
        super().disconnect(effect)

    def _tell(self, event: Event) -> None:
        """Tell the node what has happened to a connection, now or when the cut heals."""
        assert isinstance(event, BrokerConnected | BrokerSent | BrokerDisconnected)
        if isinstance(event, BrokerSent) and self._is_cut(event.link_id):
            event = replace(event, data=memoryview(bytes(event.data)))  # the buffer is used again
        self._now_or_later(event.link_id, lambda: self._node(event))

    def _is_cut(self, link_id: int) -> bool:
        return self._ports.get(link_id) in self._cut

    def _now_or_later(self, link_id: int, happen: Callable[[], None]) -> None:
        if self._is_cut(link_id):
            self._held.setdefault(link_id, []).append(happen)
        else:
            happen()
