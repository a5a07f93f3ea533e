"""A record or a topic that the target refuses stands, and everything else is copied."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import pytest

from oncelog.admin.configs import ResourceType, alter_configs
from oncelog.admin.topics import delete_topics
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import ClientConfig
from oncelog.client.blocking.producer import Producer
from oncelog.mirror.engine import Engine, run_engines
from oncelog.mirror.errors import MirrorIncomplete, TopicReplaced
from oncelog.mirror.overview import mirrored_partitions
from oncelog.mirror.settings import Cluster
from oncelog.testing import Broker
from tests.interop.mirror.conftest import Side, essence, mirror, settings_of

NOW_MS = time.time_ns() // 1_000_000
DAY_MS = 86_400_000


def send(side: Side, topic: str, *values: str | bytes, key: bytes | None = b"k", **fields: Any) -> None:
    """The values in one batch."""
    with Producer(side.client) as producer:
        for value in values:
            data = value if isinstance(value, bytes) else value.encode()
            producer.send(topic, data, key=key, partition=0, **fields)


def end(side: Side, topic: str) -> int:
    at = TopicPartition(TopicName(topic), 0)
    return side.client.list_offsets({at: -1})[at].offset


def refuse_times(source: Side, target: Side) -> str:
    source.create("m", configs={"message.timestamp.after.max.ms": str(10 * DAY_MS)})
    send(source, "m", "1", "2", timestamp_ms=NOW_MS)
    send(source, "m", "3", timestamp_ms=NOW_MS + 2 * DAY_MS)
    send(source, "m", "4", "5", timestamp_ms=NOW_MS)
    return "message.timestamp.after.max.ms of a.m"


def refuse_keyless(source: Side, target: Side) -> str:
    source.create("m")
    send(source, "m", "1", "2")
    send(source, "m", "3", key=None)
    send(source, "m", "4", "5")
    target.create("a.m", configs={"cleanup.policy": "compact"})
    return "cleanup.policy"


def refuse_large(source: Side, target: Side) -> str:
    source.create("m")
    send(source, "m", "1", "2", b"3" * 30_000, "4", "5")
    target.create("a.m", configs={"max.message.bytes": "10000"})
    return "max.message.bytes"


KINDS: list[tuple[Callable[[Side, Side], str], Mapping[str, str]]] = [
    (refuse_times, {"message.timestamp.after.max.ms": str(20 * DAY_MS)}),
    (refuse_keyless, {"cleanup.policy": "delete"}),
    (refuse_large, {"max.message.bytes": "1000000"}),
]


@pytest.mark.parametrize(("refuse", "way_out"), KINDS)
def test_a_refused_record_stands_until_the_target_takes_it(
    source: Side, target: Side, refuse: Callable[[Side, Side], str], way_out: Mapping[str, str]
) -> None:
    hint = refuse(source, target)
    source.create("orders")
    source.send("orders", "a", "b")
    with pytest.raises(MirrorIncomplete, match=r"m-0 of a stands at offset 2: a\.m-0 at the target refuses") as refused:
        mirror(source, target, sync_configs=False)
    assert hint in str(refused.value)
    assert target.values("a.orders") == ["a", "b"]
    assert target.values("a.m") == ["1", "2"]
    orders_end, refused_end = end(target, "a.orders"), end(target, "a.m")
    for _ in range(2):
        with pytest.raises(MirrorIncomplete):
            mirror(source, target, sync_configs=False)
    assert end(target, "a.orders") == orders_end, "starting again aborts nothing of other topics"
    assert end(target, "a.m") <= refused_end + 2, "each start leaves a marker at most"
    assert {row.topic: row.refused is not None for row in mirrored_partitions(target.client)} == {
        "m": True,
        "orders": False,
    }
    alter_configs(target.client, ResourceType.TOPIC, "a.m", change=way_out)
    mirror(source, target, sync_configs=False)
    assert essence(target.records("a.m")) == essence(source.records("m"))
    assert not any(row.refused for row in mirrored_partitions(target.client))


def run_until(engine: Engine, condition: Callable[[], bool]) -> None:
    """Run an engine until ``condition`` holds, then stop it."""

    async def main() -> None:
        running: Coroutine[Any, Any, None] = engine.run()
        task = asyncio.create_task(running)
        async with asyncio.timeout(30):
            while not await asyncio.to_thread(condition):
                if task.done():
                    await task
                    raise AssertionError("the engine has ended")
                await asyncio.sleep(0.02)
        engine.stop()
        await task

    asyncio.run(main())


def test_a_mirror_that_runs_takes_a_partition_up_again_by_itself(source: Side, target: Side) -> None:
    refuse_times(source, target)
    source.create("orders")
    engine = Engine(settings_of(source, target, sync_configs=False))
    steps = iter(["refused", "copied"])
    step = next(steps)

    def condition() -> bool:
        nonlocal step
        if step == "refused" and any(row.offset == 2 for row in engine.progress.refused()):
            alter_configs(
                target.client, ResourceType.TOPIC, "a.m", change={"message.timestamp.after.max.ms": str(20 * DAY_MS)}
            )
            source.send("orders", "a")
            step = next(steps)
        return step == "copied" and len(target.values("a.m")) == 5 and not engine.progress.refused()

    run_until(engine, condition)
    assert target.values("a.orders") == ["a"]
    assert essence(target.records("a.m")) == essence(source.records("m"))


def test_a_trial_whose_commit_fails_for_another_reason_costs_a_life_and_not_the_mirror(
    source: Side, target: Side
) -> None:
    refuse_times(source, target)
    with pytest.raises(MirrorIncomplete):
        mirror(source, target, sync_configs=False)
    alter_configs(target.client, ResourceType.TOPIC, "a.m", change={"message.timestamp.after.max.ms": str(20 * DAY_MS)})
    with target.broker.faults.answer("TxnOffsetCommit", "ILLEGAL_GENERATION") as fault:
        mirror(source, target, sync_configs=False)
        assert fault.hit
    assert essence(target.records("a.m")) == essence(source.records("m"))


def test_a_batch_that_the_target_refuses_once_is_no_record_that_stands(source: Side, target: Side) -> None:
    source.create("m")
    send(source, "m", "1", "2", "3")
    with target.broker.faults.answer("Produce", "UNKNOWN_SERVER_ERROR", topic="a.m") as fault:
        mirror(source, target)
        assert fault.hit
    assert target.values("a.m") == ["1", "2", "3"]


def test_a_trial_does_not_copy_a_topic_that_was_made_anew_as_the_old_one(source: Side, target: Side) -> None:
    refuse_times(source, target)
    engine = Engine(settings_of(source, target, sync_configs=False, refresh_interval_ms=60_000))
    is_replaced = False

    def condition() -> bool:
        nonlocal is_replaced
        if not is_replaced and target.values("a.m") == ["1", "2"]:
            delete_topics(source.client, ["m"])
            source.create("m")
            source.send("m", "6", "7", "8", "9")
            is_replaced = True
        return len(target.values("a.m")) > 2

    with pytest.raises(TopicReplaced, match="topic 'm' of a was deleted and created again"):
        run_until(engine, condition)
    assert is_replaced
    assert target.values("a.m") == ["1", "2"]


def test_a_topic_that_the_target_cannot_have_does_not_hold_back_others(source: Side, target: Side) -> None:
    for name in ("x" * 249, "o.x", "orders"):
        source.create(name)
    target.create("a_o_x")
    source.send("orders", "a")
    with pytest.raises(MirrorIncomplete) as refused:
        mirror(source, target)
    assert "topic o.x of a is not copied: " in str(refused.value)
    assert "longer than 249 characters" in str(refused.value)
    assert target.values("a.orders") == ["a"]


def test_an_engine_that_is_incomplete_does_not_end_the_others(source: Side, target: Side) -> None:
    refuse_times(source, target)
    source.create("orders")
    source.send("orders", "a")
    engines = [Engine(settings_of(source, target, alias), until_caught_up=True) for alias in ("a", "b")]
    with pytest.raises(MirrorIncomplete, match=r"m-0 of a stands .*; m-0 of b stands "):
        asyncio.run(run_engines(engines))
    assert target.values("a.orders") == target.values("b.orders") == ["a"]


def test_what_one_topic_and_one_group_may_not_do_holds_back_no_others(source: Side) -> None:
    with Broker(security="scram") as broker:
        for user in ("mirror", "root"):
            broker.add_user(user)
            broker.allow(user, "all")
        configs = {user: ClientConfig.from_properties(broker.client_config(user)) for user in ("mirror", "root")}
        broker.deny("mirror", "write", topic="a.m")
        broker.deny("mirror", "read", group="g1")
        for topic in ("m", "orders"):
            source.create(topic)
            source.send(topic, "1", "2")
        source.commit("g1", "orders", 1)
        source.commit("g2", "orders", 1)
        target = Side(broker, configs["root"])
        with target.client:
            to = Cluster("", broker.bootstrap_servers, replace(configs["mirror"], retry_timeout_ms=15_000))
            with pytest.raises(
                MirrorIncomplete, match=r"m-0 of a stands at offset 0: .* \(TOPIC_AUTHORIZATION_FAILED\)"
            ):
                asyncio.run(Engine(replace(settings_of(source, target), target=to), until_caught_up=True).run())
            assert target.values("a.orders") == ["1", "2"]
            assert target.committed("g1", "a.orders") is None
            assert target.values("a.orders", start=target.committed("g2", "a.orders")) == ["2"]
