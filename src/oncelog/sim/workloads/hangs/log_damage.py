"""Makes coordinators forget transactions, which no request can do: changes their log while the broker is down.

The kinds are those of real incidents: a restored disk or an unclean election loses a coordinator's log (``lost``), a
record is compacted away or written by a tool (``tombstone``), a decision counts as complete although its markers never
arrived (``unmarked``). The coordinator that loses its log has only ids made for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncelog.base.ids import TRANSACTION_STATE, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.records.builder import build_batch
from oncelog.records.internal.transaction_records import TransactionValue, encode_key, encode_value
from oncelog.records.record import Record
from oncelog.sim.checkers.hanging_verdicts import InjectedHang
from oncelog.sim.virtual.files import MemoryFiles
from oncelog.sim.virtual.world import ClientHost
from oncelog.sim.workloads.hangs.ground_truth import GroundTruth
from oncelog.sim.workloads.kit.scripted_producer import ScriptedProducer
from oncelog.sim.workloads.kit.workload import WorkloadContext
from oncelog.storage.segment.batch_scan import iter_checked

TIMEOUT_MS: Final = 20_000
# No damage later: a restarting broker repairs much, and needs time for it.
UNTIL_US: Final = 50_000_000
# The states complete commit and complete abort.
_COMPLETE: Final = (4, 5)
_FLEXIBLE: Final = 1
_MAX_BATCH_BYTES: Final = 1 << 20


class LogDamager:
    def __init__(
        self, context: WorkloadContext, truth: GroundTruth, name: str, places: Sequence[TopicPartition]
    ) -> None:
        self.context = context
        self.truth = truth
        self.name = name
        self.places = places
        self.entropy = context.entropy(name)

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client:
            await client.topic(self.places[0].topic)
            while not host.stopping and host.world.kernel.now_us < UNTIL_US:
                await host.sleep(self.entropy.randint(5_000, 30_000))
                if not host.world.stopping:
                    await self.damage_once(host, client)

    async def damage_once(self, host: ClientHost, client: AsyncClient) -> None:
        name = self.truth.new_id(self.name, at_lost=True)
        producer = ScriptedProducer(self.context, host, client, name, timeout_ms=TIMEOUT_MS)
        places = self.entropy.sample(self.places, self.entropy.randint(1, 2))
        kind = self.entropy.choice(("lost", "tombstone", "unmarked"))
        await producer.initialise()
        injected_ms = self.context.world.broker_times()
        for place in places:
            self.truth.inject(
                InjectedHang(kind, place, producer.producer_id, producer.epoch, name, TIMEOUT_MS, injected_ms)
            )
        try:
            await producer.add(places)
            for place in places:
                await producer.write(place)
            await host.sleep(self.entropy.randint(0, 2_000))
            if self.damage_log(kind, producer):
                for place in places:
                    self.truth.certain(place, producer.producer_id, *producer.last[place])
        finally:
            producer.record()

    def damage_log(self, kind: str, producer: ScriptedProducer) -> bool:
        """Change the coordinator's log between a kill and a restart. True if it was changed."""
        broker = self.context.world.broker
        if broker.stays_down or not broker.is_up:
            return False
        self.context.world.kernel.trace(f"{producer.name} is forgotten: {kind}")
        broker.stays_down = True
        broker.kill()
        broker.files.process_died()
        log = f"{TRANSACTION_STATE}-{self.truth.lost}"
        try:
            if log not in broker.files.list(""):
                return False
            is_damaged = (
                lose(broker.files, log) if kind == "lost" else rewrite(broker.files, log, self.record(kind, producer))
            )
        finally:
            broker.stays_down = False
            broker.start_until_up()
        return is_damaged

    def record(self, kind: str, producer: ScriptedProducer) -> Record:
        value = None
        now_ms = self.context.world.broker.now_ms()
        if kind == "unmarked":
            status = self.entropy.choice(_COMPLETE)
            value = encode_value(
                TransactionValue(producer.producer_id, producer.epoch, TIMEOUT_MS, status, (), now_ms, now_ms),
                _FLEXIBLE,
            )
        return Record(-1, now_ms, encode_key(producer.name), value, ())


def lose(files: MemoryFiles, log: str) -> bool:
    try:
        files.remove(log)
        files.sync_directory("")
    except OSError:  # a sync fault: a power cut may restore the log
        return False
    return True


def rewrite(files: MemoryFiles, log: str, record: Record) -> bool:
    """Append a durable record to a log without the broker."""
    last = max((name for name in files.list(log) if name.endswith(".log")), default="")
    path = f"{log}/{last}"
    file, end, size, epoch = files.open(path), 0, 0, 0
    for position, header, _, _ in iter_checked(file, 0, file.size(), _MAX_BATCH_BYTES):
        end, size, epoch = header.next_offset, position + header.size_bytes, header.partition_leader_epoch
    if not size:  # rolled just now, or never written
        return False
    batch = build_batch([record], base_offset=end, leader_epoch=epoch)
    files.overwrite(path, files.content(path)[:size] + bytes(batch))
    return True
