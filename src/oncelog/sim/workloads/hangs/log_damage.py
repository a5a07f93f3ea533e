"""Coordinators that forget, as no request can make them: their log is changed while the broker is down.

What happens to real ones: a restored disk or an unclean election loses a coordinator's log (``lost``), a record is
compacted away or written by a tool (``tombstone``), and a decision is thought complete although its markers never
arrived (``unmarked``). Only ids that were made for this are at the coordinator that loses its log.
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
UNTIL_US: Final = 50_000_000
"""A broker that starts again makes up for much; so later on it is left alone."""
_COMPLETE: Final = (4, 5)
"""Numbers of the states that say so: committed, aborted."""
_FLEXIBLE: Final = 1
_MAX_BATCH_BYTES: Final = 1 << 20


class LogDamager:
    """Begins a transaction, has its coordinator forget it between two lives of the broker, and begins anew."""

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
                    await self.one(host, client)

    async def one(self, host: ClientHost, client: AsyncClient) -> None:
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
            if self.damage(kind, producer):
                for place in places:
                    self.truth.certain(place, producer.producer_id, *producer.last[place])
        finally:
            producer.record()

    def damage(self, kind: str, producer: ScriptedProducer) -> bool:
        """Kill the broker, change the coordinator's log, start it again; whether it was done."""
        broker = self.context.world.broker
        if broker.stays_down or not broker.is_up:
            return False
        self.context.world.kernel.trace(f"{producer.name} is forgotten: {kind}")
        broker.stays_down = True
        broker.kill()
        broker.files.let_process_die()
        log = f"{TRANSACTION_STATE}-{self.truth.lost}"
        try:
            if log not in broker.files.list(""):
                return False
            done = (
                lose(broker.files, log) if kind == "lost" else rewrite(broker.files, log, self.record(kind, producer))
            )
        finally:
            broker.stays_down = False
            broker.start_until_up()
        return done

    def record(self, kind: str, producer: ScriptedProducer) -> Record:
        """The record that the coordinator will read last about the transaction."""
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
    except OSError:  # a sync that was to fail: it may come back with the power
        return False
    return True


def rewrite(files: MemoryFiles, log: str, record: Record) -> bool:
    """Add a record to a log behind its broker's back, on the disk for good."""
    last = max((name for name in files.list(log) if name.endswith(".log")), default="")
    path = f"{log}/{last}"
    file, end, size, epoch = files.open(path), 0, 0, 0
    for at, header, _, _ in iter_checked(file, 0, file.size(), _MAX_BATCH_BYTES):
        end, size, epoch = header.next_offset, at + header.size_bytes, header.partition_leader_epoch
    if not size:  # rolled just now, or never written
        return False
    batch = build_batch([record], base_offset=end, leader_epoch=epoch)
    files.overwrite(path, files.content(path)[:size] + bytes(batch))
    return True
