"""The links of this broker to all others: requests out, responses in, over connections that the runtime carries.

A broker is reached at its registered inter-broker listener. Each purpose has a connection of its own: responses come in
the order of the requests, so slow requests must not delay fast ones. When a broker leaves or registers again its links
are dropped, and pending requests answered with None.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from oncelog.base.ids import BrokerId
from oncelog.base.security import SecurityProtocol
from oncelog.base.units import MIB
from oncelog.core.configs.broker import BrokerConfig
from oncelog.core.configs.kinds import ConfigError
from oncelog.core.configs.listeners import inter_broker_listener
from oncelog.handlers.broker.broker_clients import broker_client_id
from oncelog.node.brokers.connections import LinkConnections, LinkEvent

if TYPE_CHECKING:
    from oncelog.base.security import Endpoint
    from oncelog.client.machine.sasl.exchange import SaslMachine
    from oncelog.core.controller.image.cluster_image import ClusterImage
    from oncelog.core.controller.image.model import BrokerImage
    from oncelog.node.brokers.link import Link, OnAnswer
    from oncelog.node.brokers.probe import Probe
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.kernel.events import BrokerConnected, BrokerDisconnected, BrokerSent, Effect
    from oncelog.wire.message import Request

Cancel = Callable[[], object]
OnBroker = Callable[[BrokerId], object]

NONCE_BYTES: Final = 24
MAX_CONTROL_RESPONSE_BYTES: Final = 64 * MIB
"""Largest response to any request but a replica's Fetch."""


class LinkPurpose(Enum):
    FETCH = "fetch"
    """Fetch records of partitions that the other broker leads."""
    CONTROL = "control"
    """Queries that are answered at once."""
    VERIFICATION = "verification"
    """Queries about transactions that the other broker coordinates; they wait until its decisions are durable."""
    TRANSACTIONS = "transactions"
    """Add partitions to transactions that the other broker coordinates; this may also wait for a transaction to
    complete."""
    LIVENESS = "liveness"
    """Ask whether the other broker's process runs."""
    MARKERS = "markers"
    """Write markers to partitions that the other broker leads; answered when they are durable."""
    DEAD_LETTERS = "letters"
    """Write dead letters of share groups to partitions that the other broker leads; answered when they are durable."""
    SHARE = "share"
    """Read and change states of share partitions that the other broker coordinates; answered when they are durable."""


class BrokerLinks:
    """All links of this broker, by broker and purpose.

    ``on_refused`` gets a broker whose port refuses connections: its process is dead, even if its session lives.
    ``on_broken``: a connection ended with requests unanswered. ``on_reached``: a connection is ready.
    ``on_frozen``: its process stands still, and its registration is being ended.
    """

    def __init__(self, metadata: Metadata, deadlines: Deadlines) -> None:
        self.on_refused: list[OnBroker] = []
        self.on_broken: list[OnBroker] = []
        self.on_reached: list[OnBroker] = []
        self.on_frozen: list[OnBroker] = []
        self.on_heard: OnBroker | None = None
        """Called with the broker of each arrival of bytes."""
        self._metadata = metadata
        self._deadlines = deadlines
        # Name and protocol of the inter-broker listener. Fixed at start: listeners do not change while the broker runs.
        self._inter_broker = inter_broker_listener(BrokerConfig(metadata.config.static))
        self._connections = LinkConnections()
        self._links: dict[tuple[BrokerId, LinkPurpose], Link] = {}
        # Epochs of registrations that cannot be reached with the present configuration; each is reported once.
        self._reported: set[int] = set()

    def request(
        self,
        broker_id: BrokerId,
        purpose: LinkPurpose,
        message: Request[Any],
        on_answer: OnAnswer,
        timeout_ms: int | None = None,
    ) -> Cancel:
        """Send a request in the highest version that both brokers have. ``on_answer(response)`` is called once, never
        before this returns; None: no response, and the request may have been carried out. The result cancels the
        request: its answer is ignored.

        ``timeout_ms`` defaults to ``request.timeout.ms``, for fetches to ``replica.socket.timeout.ms``.
        """
        link = self._link(broker_id, purpose)
        if link is None:
            # Through an alarm, so that ``on_answer`` is never called before this returns.
            alarm = self._deadlines.at(self._deadlines.now_ms, lambda _now_ms: on_answer(None))
            return partial(self._deadlines.cancel, alarm)
        return link.request(message, on_answer, self._timeout_ms(purpose) if timeout_ms is None else timeout_ms)

    def connect(self, broker_id: BrokerId, purpose: LinkPurpose) -> None:
        """Connect without a request, to notice the broker's death at once (``on_refused``)."""
        link = self._link(broker_id, purpose)
        if link is not None:
            link.connect()

    def probe(
        self, broker_id: BrokerId, on_accepted: Callable[[int], object], on_closed: Callable[[], object]
    ) -> Probe | None:
        """Try a new connection to a broker; None if it cannot be reached. ``on_accepted`` gets the connection's number
        when the broker's machine has accepted it, ``on_closed`` is called when its process has closed it.
        """
        from oncelog.node.brokers.probe import Probe

        broker = self._metadata.image.brokers.get(broker_id)
        endpoint = None if broker is None else self._endpoint(broker)
        if endpoint is None:
            return None
        client_id = broker_client_id(self._metadata.broker_id, LinkPurpose.LIVENESS.value)
        probe = Probe(broker_id, client_id, self._connections, on_accepted, on_closed)
        # In plain text: a frozen process would not take part in a TLS handshake, and so would not seem to accept.
        probe.connect(endpoint._replace(protocol=SecurityProtocol.PLAINTEXT))
        return probe

    def _link(self, broker_id: BrokerId, purpose: LinkPurpose) -> Link | None:
        link = self._links.get((broker_id, purpose))
        broker = self._metadata.image.brokers.get(broker_id)
        if broker is None:
            return None
        if link is None and (link := self._new_link(broker, purpose)) is not None:
            self._links[broker_id, purpose] = link
        return link

    def _new_link(self, broker: BrokerImage, purpose: LinkPurpose) -> Link | None:
        """None, reported once, if the configuration does not allow a link."""
        from oncelog.node.brokers.link import Link, LinkSettings

        endpoint = self._endpoint(broker)
        if endpoint is None:
            return None
        try:
            new_login = self._new_login(endpoint)
        except ConfigError as error:
            self._report_once(broker, str(error))
            return None
        config = self._metadata.config
        settings = LinkSettings(
            client_id=broker_client_id(self._metadata.broker_id, purpose.value),
            setup_timeout_ms=int(config.get("socket.connection.setup.timeout.ms")),
            setup_timeout_max_ms=int(config.get("socket.connection.setup.timeout.max.ms")),
            max_response_bytes=self._max_response_bytes(purpose),
            new_login=new_login,
        )
        return Link(
            broker, endpoint, settings, self._connections, self._deadlines, partial(self._notify, broker.broker_id)
        )

    def _endpoint(self, broker: BrokerImage) -> Endpoint | None:
        """None, reported once, if the broker has no inter-broker listener."""
        name, protocol = self._inter_broker
        endpoint = broker.endpoint(name)
        if endpoint is None:
            self._report_once(broker, f"it has no listener {name}, by which brokers reach each other")
        return None if endpoint is None else endpoint._replace(protocol=protocol)

    def _new_login(self, endpoint: Endpoint) -> Callable[[], SaslMachine] | None:
        """A factory of SASL logins at an endpoint; None without SASL. Raises ConfigError."""
        if not endpoint.protocol.has_sasl:
            return None
        from oncelog.client.machine.sasl.exchange import SaslMachine, SaslSettings
        from oncelog.core.sasl.settings import inter_broker_credentials

        credentials = SaslSettings(*inter_broker_credentials(self._metadata.config, endpoint.listener_name))
        return lambda: SaslMachine(credentials, self._metadata.random_bytes(NONCE_BYTES).hex())

    def _report_once(self, broker: BrokerImage, reason: str) -> None:
        if broker.epoch not in self._reported:
            self._reported.add(broker.epoch)
            self._connections.report(f"broker {broker.broker_id} cannot be reached: {reason}")

    def is_logging_in(self, link_id: int) -> bool:
        """True while incoming bytes belong to this broker's SASL login."""
        link = self._connections.link_of(link_id)
        return link is not None and link.is_logging_in

    def _max_response_bytes(self, purpose: LinkPurpose) -> int:
        if purpose is not LinkPurpose.FETCH:
            return MAX_CONTROL_RESPONSE_BYTES
        config = self._metadata.config
        # A response may exceed the limit by one batch, and no batch is larger than the request that appended it.
        return int(config.get("replica.fetch.response.max.bytes")) + int(config.get("socket.request.max.bytes"))

    def _timeout_ms(self, purpose: LinkPurpose) -> int:
        is_fetch = purpose is LinkPurpose.FETCH
        return int(self._metadata.config.get("replica.socket.timeout.ms" if is_fetch else "request.timeout.ms"))

    def _notify(self, broker_id: BrokerId, event: LinkEvent) -> None:
        callbacks = {
            LinkEvent.REFUSED: self.on_refused,
            LinkEvent.BROKEN: self.on_broken,
            LinkEvent.REACHED: self.on_reached,
        }
        for callback in callbacks[event]:
            callback(broker_id)

    def apply_change(self, image: ClusterImage) -> None:
        """Drop the links to brokers that have left or registered again."""
        for key, link in list(self._links.items()):
            broker = image.brokers.get(key[0])
            # Another registration is another process, perhaps at another address.
            if broker is None or broker.epoch != link.broker.epoch:
                del self._links[key]
                link.drop()

    def connected(self, event: BrokerConnected) -> None:
        link = self._connections.link_of(event.link_id)
        if link is not None:
            link.connected()

    def received(self, event: BrokerSent) -> None:
        link = self._connections.link_of(event.link_id)
        if link is not None:
            if self.on_heard is not None:
                self.on_heard(link.broker_id)
            link.received(event.data)

    def disconnected(self, event: BrokerDisconnected) -> None:
        link = self._connections.link_of(event.link_id)
        if link is not None:
            link.disconnected(refused=event.refused)

    def take_outgoing(self, effects: list[Effect]) -> None:
        self._connections.take_outgoing(effects)
