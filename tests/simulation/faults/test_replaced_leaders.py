"""A leader that was replaced while it was cut off from the tree tells what is long past, and the tool knows that."""

from __future__ import annotations

from typing import Final

from oncelog.admin.transactions import Scan, describe_transaction, scan
from oncelog.base.transaction_verdicts import ReasonCode, Verdict
from oncelog.client.aio.transactions import AsyncTransactionalProducer
from oncelog.client.blocking import Client
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.sim.blocking import with_client
from oncelog.sim.faults.plan import heal
from oncelog.sim.virtual.tree_session import TREE
from oncelog.sim.virtual.world import ClientHost, World
from oncelog.wire.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest

SESSION_MS: Final = 2_000
CUT_OFF: Final = "broker-1"
"""The broker that leads, and that clients of the cluster try first."""
CONFIG: Final = {"transaction.state.log.num.partitions": "3", "transaction.state.log.min.isr": "1"}


async def create(host: ClientHost) -> None:
    """Create topic t, whose one partition the broker leads that will be cut off."""
    replicas = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[replicas])
    async with host.client() as client:
        [created] = (await client.request(CreateTopicsRequest(topics=[topic], timeout_ms=2_000))).topics
    assert created.error_code == 0


async def coordinated_elsewhere(host: ClientHost) -> str:
    """A transactional id that another broker coordinates."""

    def find(client: Client) -> str:
        names = (f"id-{number}" for number in range(20))
        return next(name for name in names if client.coordinator(name, 1) != 1)

    return await with_client(host, find)


async def look(host: ClientHost) -> Scan:
    return await with_client(host, lambda client: scan(client, min_age_ms=0))


def test_what_the_later_leader_has_ended_does_not_hang() -> None:
    world = World(7, CONFIG, brokers=3, session_timeout_ms=SESSION_MS)
    for broker in world.brokers:
        broker.start_until_up()

    async def program(host: ClientHost) -> tuple[Scan, Scan]:
        await create(host)
        name = await coordinated_elsewhere(host)
        async with host.client() as client, AsyncTransactionalProducer(client, TransactionSettings(name)) as producer:
            await producer.initialize()
            async with producer.transaction():
                await producer.send("t", b"x")
                await producer.flush()
                world.network.cut(CUT_OFF, TREE)
                world.network.cut(TREE, CUT_OFF)
                await host.sleep(2 * SESSION_MS)
        ended = await with_client(host, lambda client: describe_transaction(client, name))
        assert ended.state == "CompleteCommit"
        cut_off = await look(host)
        heal(world)
        await host.sleep(2 * SESSION_MS)
        return cut_off, await look(host)

    cut_off, mended = world.run(world.on_host("client", program))
    [open_still] = cut_off.transactions
    assert (open_still.producer.leader, open_still.code) == (1, ReasonCode.MOVED_ON)
    assert open_still.verdict is Verdict.SUSPECTED
    assert "broker 1, which has it open, does not lead the partition any more" in open_still.reason
    assert mended.transactions == []
