"""Coordinators that forget, planted where no request can: their log is changed while the broker is down.

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
from oncelog.sim.checkers.verdicts import Planted
from oncelog.sim.files import MemoryFiles
from oncelog.sim.workloads.base import Stage
from oncelog.sim.workloads.hangs.by_hand import ByHand
from oncelog.sim.workloads.hangs.ground import Ground
from oncelog.sim.world import ClientHost
from oncelog.storage.segment.batch_scan import iter_checked

TIMEOUT_MS: Final = 20_000
UNTIL_US: Final = 50_000_000
"""A broker that starts again makes up for much; so later on it is left alone."""
_COMPLETE: Final = (4, 5)
"""Numbers of the states that say so: committed, aborted."""
_FLEXIBLE: Final = 1
_MAX_BATCH_BYTES: Final = 1 << 20


class Vandal:
    """Begins a transaction, has its coordinator forget it between two lives of the broker, and begins anew."""

    def __init__(self, stage: Stage, ground: Ground, name: str, places: Sequence[TopicPartition]) -> None:
        self.stage = stage
        self.ground = ground
        self.name = name
        self.places = places
        self.entropy = stage.entropy(name)

    async def __call__(self, host: ClientHost) -> None:
        async with host.client() as client:
            await client.topic(self.places[0].topic)
            while not host.stopping and host.world.kernel.now_us < UNTIL_US:
                await host.sleep(self.entropy.randint(5_000, 30_000))
                if not host.world.stopping:
                    await self.one(host, client)

    async def one(self, host: ClientHost, client: AsyncClient) -> None:
        """One transaction that is going to be forgotten."""
        name = self.ground.new_id(self.name, at_lost=True)
        hand = ByHand(self.stage, host, client, name, timeout_ms=TIMEOUT_MS)
        places = self.entropy.sample(self.places, self.entropy.randint(1, 2))
        kind = self.entropy.choice(("lost", "tombstone", "unmarked"))
        await hand.initialise()
        now_ms = self.stage.world.broker.now_ms()
        for place in places:
            self.ground.plant(Planted(kind, place, hand.producer_id, hand.epoch, name, TIMEOUT_MS, planted_ms=now_ms))
        try:
            await hand.add(places)
            for place in places:
                await hand.write(place)
            await host.sleep(self.entropy.randint(0, 2_000))
            if self.damage(kind, hand):
                for place in places:
                    self.ground.certain(place, hand.producer_id, *hand.last[place])
        finally:
            hand.record()

    def damage(self, kind: str, hand: ByHand) -> bool:
        """Kill the broker, change the coordinator's log, start it again; whether it was done."""
        broker = self.stage.world.broker
        if broker.stays_down or not broker.is_up:
            return False
        self.stage.world.kernel.trace(f"{hand.name} is forgotten: {kind}")
        broker.stays_down = True
        broker.kill()
        broker.files.let_process_die()
        log = f"{TRANSACTION_STATE}-{self.ground.lost}"
        try:
            if log not in broker.files.list(""):
                return False
            done = lose(broker.files, log) if kind == "lost" else rewrite(broker.files, log, self.record(kind, hand))
        finally:
            broker.stays_down = False
            broker.start_until_up()
        return done

    def record(self, kind: str, hand: ByHand) -> Record:
        """What the coordinator will read last about the transaction."""
        value = None
        now_ms = self.stage.world.broker.now_ms()
        if kind == "unmarked":
            status = self.entropy.choice(_COMPLETE)
            value = encode_value(
                TransactionValue(hand.producer_id, hand.epoch, TIMEOUT_MS, status, (), now_ms, now_ms), _FLEXIBLE
            )
        return Record(-1, now_ms, encode_key(hand.name), value, ())


def lose(files: MemoryFiles, log: str) -> bool:
    """Take a log away for good."""
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
