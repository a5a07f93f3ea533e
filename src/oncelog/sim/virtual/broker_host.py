"""A simulated machine with a broker: how its process dies, how the machine does, and how both start again.

A process that dies leaves its page cache (:meth:`BrokerHost.kill`); a machine that loses power may lose all that was
not synced (:meth:`BrokerHost.lose_power`). Files raise PowerLost or ProcessKilled in the middle of an event, too.
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
from oncelog.sim.virtual.broker_records import AnswerKill, BrokerRecords, KilledAtAnswer, WireTap
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
    """A machine with a broker, which dies and starts. ``config`` holds Kafka's keys; disk, clock, latencies and stream
    of chance are its own."""

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
        (self.endpoint,) = self.settings.listeners.endpoints
        """The one listener, PLAINTEXT unless ``listeners`` is configured: ``SASL_PLAINTEXT://:9092``."""
        broker_config = self.settings.config
        self._limit = request_limit(
            int(broker_config.get("socket.request.max.bytes")), int(broker_config.get("oncelog.request.max.bytes"))
        )
        entropy = kernel.entropy(f"broker {broker_id}")
        self.machine = Machine(kernel, self.address[0], entropy, latencies or Latencies())
        self.records = BrokerRecords(broker_id)
        self.stays_down = False
        """Somebody else will start it again; otherwise it comes up by itself after it died."""
        tokens = "tokens" if broker_id == FIRST_BROKER else f"tokens {broker_id}"
        self._tokens = SeededEntropy(kernel.entropy(tokens))
        self.has_lost_disk = False
        """The machine has another disk than the one it had first."""
        self._is_coming_back = False
        self._cluster_id = ""
        self._frozen_ms = 0
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
        """Reports of the broker, over all its lives."""
        return self.records.reports

    @property
    def audits(self) -> list[AuditRecord]:
        """Entries of the broker's audit log, over all its lives."""
        return self.records.audits

    @property
    def deaths(self) -> list[str]:
        """Why the broker stopped by itself, each time."""
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
        """The session of the running broker in the coordination tree, None while it is down."""
        return None if self._process is None else self._process.session

    def now_ms(self) -> int:
        return self.machine.now_ms()

    def observe(self, tap: WireTap, on_death: Callable[[bool], None]) -> None:
        """Tell ``tap`` of all that crosses the broker's network, and ``on_death`` (power lost?) of each death."""
        self.records.tap = tap
        self.tell_of_death(on_death)

    def tell_of_start(self, on_start: Callable[[], None]) -> None:
        self._on_start.append(on_start)

    def tell_of_death(self, on_death: Callable[[bool], None]) -> None:
        """Call back when the process is gone, before it starts again; True: the power is, too."""
        self._on_death.append(on_death)

    def format(self, cluster_id: str) -> None:
        """Write down on the disk which cluster the broker is of, as several brokers of one cluster need."""
        self._cluster_id = cluster_id
        directory_id = uuid_text(self._tokens.token(16))
        write_meta_properties(self.files, MetaProperties(cluster_id, BrokerId(self.broker_id), directory_id))

    # Starting

    def start(self) -> bool:
        """Start the process; False when it died at once (the power may fail in recovery, too)."""
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
            self._bury(silent=isinstance(error, PowerLost) and not self._was_killed(error))
            return False
        for told in self._on_start:
            told()
        return True

    def start_until_up(self) -> None:
        """Start; when it dies at once, again after a while, as a service manager does."""
        if not self.is_up and not self.stays_down and not self.start():
            self._come_back()

    def _come_back(self) -> None:
        """Start the broker again, once, however many see it die: a start that fails half-way is a death and a failed
        start."""
        if not self._is_coming_back:
            self._is_coming_back = True
            self.kernel.after(self.machine.entropy.randint(10_000, 1_000_000), self._return)

    def _return(self) -> None:
        self._is_coming_back = False
        self.start_until_up()

    def _accept(self, connection: Connection) -> ServerConnection:
        assert self._process is not None
        return self._process.accept(connection)

    # Standing still, and the clock

    def freeze(self) -> None:
        """Stand still: events that happen meanwhile are taken in at :meth:`thaw`."""
        if not self.machine.frozen:
            self._frozen_ms = self.kernel.now_ms()
        self.machine.frozen = True

    def thaw(self) -> None:
        frozen_ms = self.kernel.now_ms() - self._frozen_ms if self.machine.frozen else 0
        self.machine.frozen = False
        if self._process is not None:
            self._process.thaw(frozen_ms)

    def move_clock(self, by_ms: int) -> None:
        """Set the machine's clock forward, or back."""
        self.machine.clock_ms += by_ms
        if self._process is not None:
            self._process.clock_moved()

    # Death

    def shut_down(self) -> None:
        """End the process cleanly; it takes a while (see ``is_up``)."""
        if self._process is not None and not self._process.stopping:
            self._process.stopping = True
            self._process.dispatch(Shutdown(self.now_ms() + LONGEST_SHUTDOWN_MS))

    def kill(self, *, answers_arrive: bool = False) -> None:
        """End the process; what it wrote is in the page cache. Answers on their way are lost, or still arrive."""
        self.kernel.trace(f"broker {self.broker_id} killed")
        self._bury(silent=False, answers_arrive=answers_arrive)

    def kill_at_answer(self, api_key: int, killed: Callable[[], object]) -> None:
        """End the process when its next answer to a request of this kind leaves, and call ``killed``."""
        self.records.answer_kill = AnswerKill(api_key, killed)

    def tell_of_answer(self, api_key: int, answered: Callable[[], object]) -> None:
        """Call ``answered`` when the next answer to a request of this kind leaves."""
        self.records.answer_kill = AnswerKill(api_key, answered, spares=True)

    def lose_power(self) -> None:
        """End the machine: what was not synced may be lost, or torn."""
        self.kernel.trace(f"broker {self.broker_id} lost power")
        self._bury(silent=True)

    def lose_disk(self) -> None:
        """Put an empty disk in place of the one there was; the process is gone."""
        assert self._process is None
        self.kernel.trace(f"broker {self.broker_id} lost its disk")
        self.machine.files = MemoryFiles(now_ms=self.machine.now_ms)
        self.machine.flips.clear()
        self.has_lost_disk = True
        self.format(self._cluster_id)
        for told in self._on_disk_lost:
            told()

    def tell_of_lost_disk(self, on_disk_lost: Callable[[], None]) -> None:
        """Call back when the disk has been replaced by an empty one."""
        self._on_disk_lost.append(on_disk_lost)

    def flip(self, flip: Flip) -> None:
        self.kernel.trace(f"broker {self.broker_id}: a bit flips in {flip.partition} at offset {flip.offset}")
        flip.make()
        self.machine.flips.append(flip)
        for told in self._on_flip:
            told(flip.partition)

    def tell_of_flip(self, on_flip: Callable[[TopicPartition], None]) -> None:
        """Call back with the partition whose records are damaged now."""
        self._on_flip.append(on_flip)

    def _ended(self, end: PowerLost | None) -> None:
        """The process has ended by itself (None), or files have ended it in the middle of an event."""
        if end is None:
            self._bury(silent=False)
        elif self._was_killed(end):
            self.kill(answers_arrive=isinstance(end, KilledAtAnswer))
        else:
            self.lose_power()

    def _was_killed(self, end: BaseException) -> bool:
        """True when only the process has ended; then the next one may go on with its files."""
        if not isinstance(end, ProcessKilled):
            return False
        self.files.let_process_die()
        return True

    def _bury(self, *, silent: bool, answers_arrive: bool = False) -> None:
        """The process is gone; with ``silent`` the power is, and nobody on the network is told."""
        process, self._process = self._process, None
        self.network.stop_listening(self.address, silent=silent)
        self.machine.frozen = False
        entropy = self.machine.entropy
        if silent:
            self.files.crash(entropy.getrandbits(64))
        if process is None:
            if silent:  # in the middle of a start: the kill before it may have kept what this has not
                self.records.tap.died(power_lost=True)
            return
        if not self.stays_down:
            self._come_back()
        process.alive = False
        self.records.tap.died(power_lost=silent)
        if answers_arrive:
            process.end(Connection.server_exited)
        else:
            process.end(lambda one: one.server_died(silent_us=entropy.randint(0, 2_000_000) if silent else 0))
        self.network.host_died(self.name, silent=silent)
        for told in self._on_death:
            told(silent)
