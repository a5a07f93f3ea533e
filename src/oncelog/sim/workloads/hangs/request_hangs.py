"""The kinds of hangs that requests can cause; each is a function that takes a :class:`HangInjector`.

Leaders that verify transactions (KIP-890) must reject these requests. One kind hangs in ``__consumer_offsets``: a
TxnOffsetCommit that arrives after its transaction has ended. Reads of stable offsets wait for its pending offset; once
an administrator aborts, it must vanish, while offsets committed in time stay.
"""

from __future__ import annotations

import asyncio
from typing import Final

from oncelog.base.hashing import coordinator_partition
from oncelog.base.ids import CONSUMER_OFFSETS, TopicPartition
from oncelog.client.aio.client import AsyncClient
from oncelog.client.aio.link import AsyncLink
from oncelog.client.errors import ClientError
from oncelog.sim.checkers.history import GroupPartition, Transaction
from oncelog.sim.virtual.world import CLIENT_CONFIG, ClientHost
from oncelog.sim.workloads.hangs.injector import HangInjector, Injection
from oncelog.sim.workloads.hostile_clients import LATE, newest_connection
from oncelog.sim.workloads.kit.scripted_producer import DAY_MS, ScriptedProducer
from oncelog.wire.messages.produce import PartitionProduceResponse

OFFSET_IN_TIME: Final = 5
LATE_OFFSET: Final = 9
COMMIT_VERSION: Final = 3


async def _late_offsets(injector: HangInjector, host: ClientHost, client: AsyncClient) -> None:
    # Commit one offset in time and one after the end. Each transaction has its own group.
    producer, place = injector.new_producer(host, client), injector.places[0]
    await producer.initialise()
    injector.truth.groups.append(producer.name)
    try:
        await producer.add_offsets(producer.name)
        if await producer.commit_offset(producer.name, place, OFFSET_IN_TIME, COMMIT_VERSION):
            return
        await producer.end(commit=injector.entropy.random() < 0.6)
        await producer.completed()
    finally:
        context = injector.context
        offsets = {GroupPartition(producer.name, place): OFFSET_IN_TIME}
        context.recorder.transactions.append(
            Transaction(f"{producer.name} offsets", producer.name, [], producer.outcome, producer.ending_at, offsets)
        )
    count = int(context.world.broker.settings.config.get("offsets.topic.num.partitions"))
    kept = TopicPartition(CONSUMER_OFFSETS, coordinator_partition(producer.name, count))
    injector.inject("offsets", producer, kept)
    code = await producer.commit_offset(producer.name, place, LATE_OFFSET, COMMIT_VERSION)
    injector.answered(code, producer, kept)


# Larger than any id that a coordinator assigns within a simulation.
RAW_PRODUCER_IDS: Final = 4_000_000_000
HELD_MS: Final = 20_000


async def _late(injector: HangInjector, host: ClientHost, client: AsyncClient) -> None:
    # KAFKA-9144: a batch is held on an old connection while the transaction ends, and arrives after its marker.
    producer, places = injector.new_producer(host, client), injector.two_partitions()
    await producer.initialise()
    try:
        await producer.add(places)
        for place in places:
            await producer.write(place)
        await _end_before(injector, producer, places[0])
    finally:
        producer.record()


async def _end_before(injector: HangInjector, producer: ScriptedProducer, place: TopicPartition) -> None:
    # End the transaction while another of its batches is in flight.
    client, host, value = producer.client, producer.host, producer.new_value()
    old = await AsyncLink.open(client.view.brokers[await client.leader(place)].address, CLIENT_CONFIG)
    held = newest_connection(host)
    held.up.cut(LATE)
    injector.inject("late", producer, place)
    late = asyncio.create_task(producer.send(old, producer.request(place, value), HELD_MS))
    late.add_done_callback(_ignore_client_error)
    is_late = False
    try:
        await producer.end(commit=injector.entropy.random() < 0.6)
        await producer.completed()
        await host.sleep(injector.entropy.randint(0, 2_000))
        is_late = held.up.is_cut(LATE)  # unless the network was healed meanwhile
        held.up.heal(LATE)
        if is_late:
            response = await late
            injector.answered(response.error_code, producer, place, response.base_offset)
    finally:
        producer.record_hung(place, value, is_late=is_late)
        held.up.heal(LATE)
        late.cancel()
        await old.close()


async def _unlisted(injector: HangInjector, host: ClientHost, client: AsyncClient) -> None:
    # Write to a partition that was never added; the transaction continues elsewhere, and ends or times out without it.
    producer, (listed, other) = injector.new_producer(host, client), injector.two_partitions()
    await producer.initialise()
    try:
        await producer.add([listed])
        await producer.write(listed)
        await injector.hang("unlisted", producer, other)
        if injector.entropy.random() < 0.7:
            await host.sleep(injector.entropy.randint(0, producer.timeout_ms * 3 // 4))
            await producer.write(listed)
            await producer.end(commit=injector.entropy.random() < 0.6)
    finally:
        producer.record()


async def _moved_on(injector: HangInjector, host: ClientHost, client: AsyncClient) -> None:
    # A zombie writes to a partition before its successor, which has a newer epoch, does.
    zombie, (listed, other) = injector.new_producer(host, client), injector.two_partitions()
    await zombie.initialise()
    try:
        if injector.entropy.random() < 0.5:
            await zombie.add([listed])
            await zombie.write(listed)
        successor = ScriptedProducer(injector.context, host, client, zombie.name, timeout_ms=zombie.timeout_ms)
        await successor.initialise()
        await injector.hang("moved-on", zombie, other)
    finally:
        zombie.record()


async def _raw(injector: HangInjector, host: ClientHost, client: AsyncClient) -> None:
    # Use a producer id that no coordinator assigned, with an unknown transactional id or one of another producer.
    name = injector.truth.new_id(injector.name)
    if injector.live_ids and injector.entropy.random() < 0.3:
        name = injector.entropy.choice(injector.live_ids)
    raw = ScriptedProducer(
        injector.context,
        host,
        client,
        name,
        timeout_ms=0,
        age_ms=injector.entropy.choice((0, DAY_MS)),
        producer_id=RAW_PRODUCER_IDS + injector.truth.count,
        epoch=injector.entropy.randint(0, 3),
    )
    await injector.hang("raw", raw, injector.entropy.choice(injector.places))


REQUEST_KINDS: Final[tuple[Injection, ...]] = (_late, _late, _unlisted, _moved_on, _raw, _late_offsets)


def _ignore_client_error(task: asyncio.Task[PartitionProduceResponse]) -> None:
    # The response may fail after its program has ended: asyncio would report the exception as unretrieved.
    if not task.cancelled() and not isinstance(task.exception(), (ClientError, type(None))):
        raise RuntimeError("a late write failed") from task.exception()
