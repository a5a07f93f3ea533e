"""The network between the brokers of an in-process cluster, in which pairs of brokers can be cut off from each other.

A cut drops packets: connections neither break nor open, and no end notices. When it heals, held bytes arrive, as TCP
retransmits. Events are held at the broker that opened a connection, in both directions.
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
    """The connections of one broker to others. For the broker's loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dispatch: Dispatch, cut: Iterable[int]) -> None:
        super().__init__(loop, self._dispatch_event)
        self._dispatch_to_node = dispatch
        # Ports of unreachable brokers.
        self._cut = set(cut)
        self._ports: dict[int, int] = {}
        # Events of each link that wait for the end of its cut, in order.
        self._held: dict[int, list[Callable[[], None]]] = {}

    def set_cut(self, ports: Iterable[int]) -> None:
        """Make exactly the brokers at these ports unreachable."""
        self._cut = set(ports)
        for link_id in list(self._held):
            if not self._is_cut(link_id):
                for action in self._held.pop(link_id, ()):
                    action()

    def connect(self, effect: ConnectToBroker) -> None:
        self._ports[effect.link_id] = effect.port
        self._now_or_later(effect.link_id, lambda: super(CuttableSockets, self).connect(effect))

    def send(self, effect: SendToBroker) -> None:
        self._now_or_later(effect.link_id, lambda: super(CuttableSockets, self).send(effect))

    def disconnect(self, effect: DisconnectFromBroker) -> None:
        # Close a connection on this side; its held events are dropped.
        self._held.pop(effect.link_id, None)
        self._ports.pop(effect.link_id, None)
        super().disconnect(effect)

    def _dispatch_event(self, event: Event) -> None:
        # Pass a connection's event to the node, now or when the cut heals.
        assert isinstance(event, BrokerConnected | BrokerSent | BrokerDisconnected)
        if isinstance(event, BrokerSent) and self._is_cut(event.link_id):
            event = replace(event, data=memoryview(bytes(event.data)))  # the buffer is reused
        self._now_or_later(event.link_id, lambda: self._dispatch_to_node(event))

    def _is_cut(self, link_id: int) -> bool:
        return self._ports.get(link_id) in self._cut

    def _now_or_later(self, link_id: int, action: Callable[[], None]) -> None:
        if self._is_cut(link_id):
            self._held.setdefault(link_id, []).append(action)
        else:
            action()
