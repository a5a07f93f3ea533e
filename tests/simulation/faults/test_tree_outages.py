"""A broker and its path to the coordination tree: it serves on whatever becomes of its commits and of its session."""

from __future__ import annotations

import asyncio

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.client.aio.producer import AsyncProducer
from oncelog.sim.faults.fault import Fault
from oncelog.sim.faults.plan import carry_out, heal
from oncelog.sim.seeds.simulation import simulate
from oncelog.sim.virtual.tree_session import TREE
from oncelog.sim.virtual.world import ClientHost, World
from oncelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

TIMEOUT_MS = 6_000
LOST = "warning: the session with the coordination tree was lost; serving on, but metadata cannot be changed"
REJOINED = "info: registered again in a new session of the coordination tree"
NOT_DONE, DONE = 0, 1
TO_BROKER, TO_TREE = 0, 1
"""Choices of a lost answer, and of the direction that is cut."""


def world(session_timeout_ms: int | None = TIMEOUT_MS) -> World:
    result = World(7, {}, session_timeout_ms=session_timeout_ms)
    result.broker.start_until_up()
    return result


async def create(host: ClientHost, topic: str) -> ErrorCode:
    """Create a topic of one partition; the answer."""
    topics = [CreatableTopic(name=topic, num_partitions=1, replication_factor=1)]
    async with host.client() as client:
        [created] = (await client.request(CreateTopicsRequest(topics=topics, timeout_ms=2_000))).topics
    return ErrorCode(created.error_code)


async def produce(host: ClientHost, topic: str) -> None:
    async with host.client() as client, AsyncProducer(client) as producer:
        await producer.send(topic, b"x")
        await producer.flush()


def reports(of: World) -> list[str]:
    """The broker's reports, but for those of the controller."""
    return [report for report in of.broker.reports if not report.startswith("info: broker ")]


def epoch(of: World) -> int:
    return of.broker.node.cluster.broker_epoch


def tree_nodes(of: World, path: str) -> list[str]:
    return of.tree.tree.session().children(path)


@pytest.mark.parametrize("choice", [NOT_DONE, DONE])
@pytest.mark.parametrize("timeout_ms", [TIMEOUT_MS, None])
def test_a_commit_whose_answer_was_lost_is_answered_as_what_became_of_it(choice: int, timeout_ms: int | None) -> None:
    result = world(timeout_ms)

    async def program(host: ClientHost) -> list[ErrorCode]:
        await carry_out(result, [Fault(0, "lost-commit-answer", 1, choice)])
        first = await create(host, "a")
        second = await create(host, "a")
        await produce(host, "a")
        return [first, second]

    in_the_way = {NOT_DONE: ErrorCode.NONE, DONE: ErrorCode.TOPIC_ALREADY_EXISTS}[choice]
    not_done = {NOT_DONE: ErrorCode.REQUEST_TIMED_OUT, DONE: ErrorCode.NONE}[choice]
    assert result.run(result.on_host("client", program)) == [not_done, in_the_way]
    assert reports(result) == []


def test_a_commit_that_no_answer_comes_to_is_known_by_the_stream_once_the_path_is_mended() -> None:
    result = world(TIMEOUT_MS)

    async def program(host: ClientHost) -> ErrorCode:
        result.network.cut(TREE, "broker-1")
        asking = asyncio.create_task(create(host, "a"))
        await host.sleep(2_500)  # longer than a heartbeat: the broker has given its connection up
        nodes = tree_nodes(result, "/brokers/topics")
        assert (nodes, asking.done()) == (["a"], False)
        heal(result)
        return await asking

    assert result.run(result.on_host("client", program)) == ErrorCode.NONE
    assert LOST not in reports(result)


@pytest.mark.parametrize("direction", [TO_BROKER, TO_TREE])
def test_a_broker_that_cannot_reach_the_tree_serves_produce_and_registers_again(direction: int) -> None:
    result = world()
    before = epoch(result)

    async def program(host: ClientHost) -> list[ErrorCode]:
        outcomes = [await create(host, "a")]
        await produce(host, "a")  # the first producer takes a block of ids from the tree, the others have theirs of it
        cut = asyncio.create_task(carry_out(result, [Fault(0, "tree-cut", 4 * TIMEOUT_MS, direction)]))
        for _ in range(10):
            await produce(host, "a")
            await host.sleep(TIMEOUT_MS / 5)
        await cut
        await host.sleep(TIMEOUT_MS)
        outcomes.append(await create(host, "b"))
        await produce(host, "b")
        return outcomes

    assert result.run(result.on_host("client", program)) == [ErrorCode.NONE] * 2
    if direction == TO_TREE:  # otherwise its heartbeats have arrived, and the session has lived on
        assert reports(result) == [LOST, REJOINED]
        assert epoch(result) > before
    else:
        assert (reports(result), epoch(result)) == ([], before)
    assert tree_nodes(result, "/brokers/ids") == ["1"]


def test_a_session_that_expires_is_replaced_as_soon_as_a_heartbeat_has_told_of_it() -> None:
    result = world()
    before = epoch(result)

    async def program(host: ClientHost) -> ErrorCode:
        await create(host, "a")
        await carry_out(result, [Fault(0, "session-expires", 1, 0)])
        gone = tree_nodes(result, "/brokers/ids")
        await produce(host, "a")
        await host.sleep(TIMEOUT_MS / 2)
        assert (gone, tree_nodes(result, "/brokers/ids")) == ([], ["1"])
        return await create(host, "b")

    assert result.run(result.on_host("client", program)) == ErrorCode.NONE
    assert reports(result) == [LOST, REJOINED]
    assert epoch(result) > before
    assert result.broker.node.cluster.image.controller_id == 1
    session = result.broker.session
    assert session is not None
    assert (session.lost, session.expired) == (False, False)


def test_without_heartbeats_the_next_commit_tells_of_the_end_and_is_refused() -> None:
    result = world(None)

    async def program(host: ClientHost) -> list[ErrorCode]:
        await carry_out(result, [Fault(0, "session-expires", 1, 0)])
        await host.sleep(60_000)
        refused = await create(host, "a")
        await host.sleep(1_000)
        return [refused, await create(host, "a")]

    assert result.run(result.on_host("client", program)) == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    assert reports(result) == [LOST, REJOINED]


@pytest.mark.parametrize("choice", [NOT_DONE, DONE])
def test_a_registration_whose_answer_is_lost_is_asked_for_again(choice: int) -> None:
    """After it was carried out the tree has a session that the broker does not know: it is not in the way."""
    result = world()

    async def program(host: ClientHost) -> ErrorCode:
        await carry_out(result, [Fault(0, "session-expires", 1, 0), Fault(0, "lost-commit-answer", 1, choice)])
        await host.sleep(TIMEOUT_MS)
        return await create(host, "a")

    assert result.run(result.on_host("client", program)) == ErrorCode.NONE
    assert reports(result) == [LOST, REJOINED]
    assert tree_nodes(result, "/brokers/ids") == ["1"]


def test_a_broker_that_stood_still_too_long_registers_again() -> None:
    result = world()

    async def program(host: ClientHost) -> ErrorCode:
        await carry_out(result, [Fault(0, "stall", 2 * TIMEOUT_MS, 0)])
        await host.sleep(TIMEOUT_MS)
        return await create(host, "a")

    assert result.run(result.on_host("client", program)) == ErrorCode.NONE
    stood_still, *then = reports(result)
    assert "was paused for 12.0 s" in stood_still
    assert then == [LOST, REJOINED]


def test_a_registration_that_ends_before_its_answer_arrives_is_made_again() -> None:
    result = world()

    async def program(host: ClientHost) -> ErrorCode:
        session = result.broker.session
        assert session is not None
        session.expire()
        while not session.lost:
            await host.sleep(1)
        result.network.cut(TREE, "broker-1")
        result.network.cut("broker-1", TREE)
        await host.sleep(3 * TIMEOUT_MS)
        heal(result)
        await host.sleep(2 * TIMEOUT_MS)
        return await create(host, "a")

    assert result.run(result.on_host("client", program)) == ErrorCode.NONE
    assert reports(result).count(LOST) == reports(result).count(REJOINED) >= 1


@pytest.mark.slow
def test_a_plan_that_breaks_the_path_to_the_tree_violates_no_rule() -> None:
    plan = [
        Fault(at_ms, kind, span_ms, choice)
        for at_ms, kind, span_ms, choice in (
            (500, "tree-cut", 3_000, TO_TREE),
            (2_000, "lost-commit-answer", 1, DONE),
            (4_000, "session-expires", 1, 0),
            (5_000, "lost-commit-answer", 1, NOT_DONE),
            (7_000, "tree-cut", 9_000, TO_TREE),
            (17_000, "tree-cut", 3_000, TO_BROKER),
            (18_000, "kill", 500, 0),
            (21_000, "tree-slow", 3_000, 4_000),
        )
    ]
    lines: list[str] = []
    outcome = simulate(6, plan=plan, safety_s=25, log=lines.append)
    assert outcome.violations == []
    assert sum("registered again" in line for line in lines) >= 2
