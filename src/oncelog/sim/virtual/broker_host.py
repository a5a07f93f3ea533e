"""A simulated machine with a broker: how its process and the machine die, and start again.

A dead process leaves its page cache. A machine without power may lose all that was not synced. Files may also raise
PowerLost or ProcessKilled within an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from oncelog.base.ids import BrokerId, TopicPartition, uuid_text
from oncelog.handlers.broker.audit import AuditRecord
from oncelog.node.assembly import Outside, StartRefused, assemble
from oncelog.node.kernel.events import Shutdown
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.node.node import Node
from oncelog.sim.virtual.broker_connections import ServerConnection
from oncelog.sim.virtual.broker_process import BrokerProcess
from oncelog.sim.virtual.broker_records import BrokerRecords, KilledAtAnswer, ResponseTrigger, WireTap
from oncelog.sim.virtual.files import MemoryFiles, PowerLost, ProcessKilled
from oncelog.sim.virtual.kernel import Kernel
from oncelog.sim.virtual.machine import Flip, Latencies, Machine, SeededEntropy
from oncelog.sim.virtual.network.connection import Address, Connection
from oncelog.sim.virtual.network.network import Network
from oncelog.sim.virtual.tree_session import TreeHost, TreeSession, TreeUnreachable
from oncelog.storage.meta_properties import MetaProperties, write_meta_properties
from oncelog.wire.framing import request_limit

LONGEST_SHUTDOWN_MS: Final = 5_000
FIRST_BROKER: Final = 1


class BrokerHost:
    """A machine with a broker that dies and restarts. ``config``: Kafka's keys."""

    def __init__(
        self,
        kernel: Kernel,
        network: Network,
        tree: TreeHost,
        config: Mapping[str, str],
        *,
        broker_id: int = FIRST_BROKER,
        latencies: Latencies | None = None,
    ) -> None:
        self.kernel = kernel
        self.network = network
        self.tree = tree
        self.broker_id = broker_id
        self.address: Address = (f"broker-{broker_id}", 9092)
        listen = None if "listeners" in config else self.address
        self.settings = read_settings({**config, "node.id": str(broker_id)}, data_directory="data", listen=listen)
        # The only listener, PLAINTEXT unless `listeners` is configured: `SASL_PLAINTEXT://:9092`.
        (self.endpoint,) = self.settings.listeners.endpoints
        broker_config = self.settings.config
        self._limit = request_limit(
            int(broker_config.get("socket.request.max.bytes")), int(broker_config.get("oncelog.request.max.bytes"))
        )
        entropy = kernel.entropy(f"broker {broker_id}")
        self.machine = Machine(kernel, self.address[0], entropy, latencies or Latencies())
        self.records = BrokerRecords(broker_id)
        # A fault will restart it; otherwise it restarts by itself.
        self.stays_down = False
        tokens = "tokens" if broker_id == FIRST_BROKER else f"tokens {broker_id}"
        self._tokens = SeededEntropy(kernel.entropy(tokens))
        # The first disk was replaced.
        self.has_lost_disk = False
        self._is_restart_scheduled = False
        self._cluster_id = ""
        # The last freeze: its begin, and its end once it is over.
        self._frozen_ms = 0
        self._thawed_ms = 0
        self._process: BrokerProcess | None = None
        self._on_start: list[Callable[[], None]] = []
        self._on_death: list[Callable[[bool], None]] = []
        self._on_disk_lost: list[Callable[[], None]] = []
        self._on_flip: list[Callable[[TopicPartition], None]] = []

    @property
    def name(self) -> str:
        return self.address[0]

    @property
    def files(self) -> MemoryFiles:
        return self.machine.files

    @property
    def reports(self) -> list[str]:
        # Reports, audit records and causes of death are kept over all lives of the broker.
        return self.records.reports

    @property
    def audits(self) -> list[AuditRecord]:
        return self.records.audits

    @property
    def deaths(self) -> list[str]:
        return self.records.deaths

    @property
    def is_up(self) -> bool:
        return self._process is not None

    @property
    def node(self) -> Node:
        assert self._process is not None
        return self._process.node

    @property
    def session(self) -> TreeSession | None:
        return None if self._process is None else self._process.session

    def now_ms(self) -> int:
        return self.machine.now_ms()

    def observe(self, tap: WireTap, on_death: Callable[[bool], None]) -> None:
        """Pass all traffic of the broker to ``tap``, and each death (power lost?) to ``on_death``."""
        self.records.tap = tap
        self.call_on_death(on_death)

    def call_on_start(self, on_start: Callable[[], None]) -> None:
        self._on_start.append(on_start)

    def call_on_death(self, on_death: Callable[[bool], None]) -> None:
        """Call back when the process is gone, before it restarts. The argument is True after a power cut."""
        self._on_death.append(on_death)

    def format(self, cluster_id: str) -> None:
        """Write the broker's cluster id to the disk, which the brokers of a cluster need."""
        self._cluster_id = cluster_id
        directory_id = uuid_text(self._tokens.token(16))
        write_meta_properties(self.files, MetaProperties(cluster_id, BrokerId(self.broker_id), directory_id))

    def start(self) -> bool:
        """Start the process. Returns False if it died at once, for example in recovery."""
        assert self._process is None
        try:
            session = self.tree.open_session(self.machine)
        except TreeUnreachable as error:
            self.deaths.append(f"at start: {error!r}")
            return False
        try:
            outside = Outside(self.files, session.reads, self._tokens)
            assembled = assemble(outside, self.settings, {self.endpoint.listener_name: self.address}, self.now_ms())
            assembled.node.directory.measure = self.files.space
            assembled.node.tree_reads.position_at_once = session.position_at_once
            self.kernel.trace(f"broker {self.broker_id} starts")
            self._process = process = BrokerProcess(
                self.machine,
                self.network,
                assembled,
                session,
                self.address,
                self.endpoint,
                self._limit,
                self.records,
                self._ended,
            )
            self.network.host_started(self.name)
            self.network.listen(self.address, self._accept)
            process.start()
        except (PowerLost, OSError, StartRefused) as error:
            self.deaths.append(f"at start: {error!r}")
            session.close()
            self._process_gone(silent=isinstance(error, PowerLost) and not self._was_killed(error))
            return False
        for callback in self._on_start:
            callback()
        return True

    def start_until_up(self) -> None:
        """Start, with delayed retries while it dies at once, like a service manager."""
        if not self.is_up and not self.stays_down and not self.start():
            self._schedule_restart()

    def _schedule_restart(self) -> None:
        # Schedule one restart. A start that fails half-way reports its death twice.
        if not self._is_restart_scheduled:
            self._is_restart_scheduled = True
            self.kernel.after(self.machine.entropy.randint(10_000, 1_000_000), self._restart)

    def _restart(self) -> None:
        self._is_restart_scheduled = False
        self.start_until_up()

    def _accept(self, connection: Connection) -> ServerConnection:
        assert self._process is not None
        return self._process.accept(connection)

    def freeze(self) -> None:
        """Stop handling events: they wait for :meth:`thaw`."""
        if not self.machine.frozen:
            self._frozen_ms = self.kernel.now_ms()
        self.machine.frozen = True

    def thaw(self) -> None:
        frozen_ms = self.kernel.now_ms() - self._frozen_ms if self.machine.frozen else 0
        if self.machine.frozen:
            self._thawed_ms = self.kernel.now_ms()
        self.machine.frozen = False
        if self._process is not None:
            self._process.thaw(frozen_ms)

    def has_stood_still(self, span_ms: int, since_ms: int) -> bool:
        """True if the process stands still, or stood still until after ``since_ms``, for at least ``span_ms``."""
        end_ms = self.kernel.now_ms() if self.machine.frozen else self._thawed_ms
        return end_ms >= since_ms and end_ms - self._frozen_ms >= span_ms

    def move_clock(self, by_ms: int) -> None:
        self.machine.clock_ms += by_ms
        if self._process is not None:
            self._process.clock_moved()

    def shut_down(self) -> None:
        """Stop the process cleanly, which takes a while (see ``is_up``)."""
        if self._process is not None and not self._process.stopping:
            self._process.stopping = True
            self._process.dispatch(Shutdown(self.now_ms() + LONGEST_SHUTDOWN_MS))

    def kill(self, *, responses_arrive: bool = False) -> None:
        """Kill the process; its writes are in the page cache. Responses in flight are lost, or still arrive."""
        self.kernel.trace(f"broker {self.broker_id} killed")
        self._process_gone(silent=False, responses_arrive=responses_arrive)

    def kill_at_response(self, api_key: int, killed: Callable[[], object]) -> None:
        """Kill the process when its next response to this API leaves, and call ``killed``."""
        self.records.response_trigger = ResponseTrigger(api_key, killed)

    def call_at_response(self, api_key: int, answered: Callable[[], object]) -> None:
        self.records.response_trigger = ResponseTrigger(api_key, answered, only_calls=True)

    def lose_power(self) -> None:
        self.kernel.trace(f"broker {self.broker_id} lost power")
        self._process_gone(silent=True)

    def lose_disk(self) -> None:
        """The process must be down."""
        assert self._process is None
        self.kernel.trace(f"broker {self.broker_id} lost its disk")
        self.machine.files = MemoryFiles(now_ms=self.machine.now_ms)
        self.machine.flips.clear()
        self.has_lost_disk = True
        self.format(self._cluster_id)
        for callback in self._on_disk_lost:
            callback()

    def call_on_lost_disk(self, on_disk_lost: Callable[[], None]) -> None:
        self._on_disk_lost.append(on_disk_lost)

    def flip(self, flip: Flip) -> None:
        self.kernel.trace(f"broker {self.broker_id}: a bit flips in {flip.partition} at offset {flip.offset}")
        flip.make()
        self.machine.flips.append(flip)
        for callback in self._on_flip:
            callback(flip.partition)

    def call_on_flip(self, on_flip: Callable[[TopicPartition], None]) -> None:
        self._on_flip.append(on_flip)

    def _ended(self, end: PowerLost | None) -> None:
        # The process has stopped by itself (None), or files have ended it within an event.
        if end is None:
            self._process_gone(silent=False)
        elif self._was_killed(end):
            self.kill(responses_arrive=isinstance(end, KilledAtAnswer))
        else:
            self.lose_power()

    def _was_killed(self, end: BaseException) -> bool:
        # True if only the process has ended: then its files stay usable for the next one.
        if not isinstance(end, ProcessKilled):
            return False
        self.files.process_died()
        return True

    def _process_gone(self, *, silent: bool, responses_arrive: bool = False) -> None:
        # Clean up after the process. With `silent` the power is off too, and the network gets no notice.
        process, self._process = self._process, None
        self.network.stop_listening(self.address, silent=silent)
        self.machine.frozen = False
        entropy = self.machine.entropy
        if silent:
            self.files.crash(entropy.getrandbits(64))
        if process is None:
            if silent:  # during a start: an earlier kill kept bytes that this power cut may lose
                self.records.tap.died(power_lost=True)
            return
        if not self.stays_down:
            self._schedule_restart()
        process.alive = False
        self.records.tap.died(power_lost=silent)
        if responses_arrive:
            process.end(Connection.server_exited)
        else:
            process.end(
                lambda connection: connection.server_died(silent_us=entropy.randint(0, 2_000_000) if silent else 0)
            )
        self.network.host_died(self.name, silent=silent)
        for callback in self._on_death:
            callback(silent)
