"""The memory that members of groups may hold until they leave, and what many protocols of one cost."""

from __future__ import annotations

import time
from typing import Any

from oncelog.base.errors import ErrorCode as E
from oncelog.base.ids import GroupId, MemberId, TopicName
from oncelog.core.groups.consumer.heartbeat import ConsumerHeartbeat
from oncelog.core.groups.member_quota import MemberMemory
from oncelog.core.groups.model import Protocol
from oncelog.core.groups.settings import GroupSettings
from tests.scenario.groups.driver import Driver
from tests.unit.handlers.groups.bench import T_ID, Bench, image, topic


def offering(size: int) -> tuple[Protocol, ...]:
    return (Protocol("range", bytes(size)),)


def test_beyond_the_bound_newcomers_wait_until_some_have_gone_and_members_go_on() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=3000, members_max_bytes=100_000))
    tokens = []
    for name in "abc":
        driver.join(name=name, version=3, protocols=offering(30_000))
        tokens.append(driver.last_token)
    refused = driver.join(name="d", version=3, protocols=offering(30_000))
    assert refused.error_code is E.COORDINATOR_NOT_AVAILABLE
    driver.advance(6000)
    members = [driver.replies[token].member_id for token in tokens]
    again = driver.join(members[0], version=3, protocols=offering(30_000))
    assert again is None or again.error_code is E.NONE, "who is a member may say it again"
    more = driver.join(members[1], version=3, protocols=offering(60_000))
    assert more.error_code is E.COORDINATOR_NOT_AVAILABLE
    driver.advance(60_000)  # nobody has said a word for as long as a session is
    assert driver.join(name="d", version=3, protocols=offering(30_000)) is None


def test_assignments_count_and_are_refused_where_there_is_no_room() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=0, members_max_bytes=100_000))
    driver.join(name="a", version=3, group="g")
    driver.join(name="b", version=3, group="h")
    driver.advance(0)
    first, second = (driver.replies[token].member_id for token in (1, 2))

    def assign(group: str, member: str) -> E:
        error_code: E = driver.sync(member, 1, {member: bytes(90_000)}, group=group).error_code
        return error_code

    assert assign("g", first) is E.NONE
    assert assign("h", second) is E.COORDINATOR_NOT_AVAILABLE
    assert driver.sync(second, 1, {second: b"small"}, group="h").error_code is E.NONE
    driver.join(name="c", version=3, group="i")
    driver.advance(0)
    driver.leave(first, group="g")
    third = driver.replies[driver.last_token - 1].member_id
    driver.advance(1000)
    assert assign("i", third) is E.NONE


def test_above_the_bound_assignments_do_not_grow_from_rebalance_to_rebalance() -> None:
    driver = Driver(GroupSettings(initial_rebalance_delay_ms=0, members_max_bytes=60_000))
    driver.join(name="a", version=3, protocols=offering(50_000))
    driver.advance(0)
    member = driver.replies[driver.last_token].member_id

    def assign(size: int, generation: int) -> E:
        error_code: E = driver.sync(member, generation, {member: bytes(size)}).error_code
        return error_code

    assert assign(50_000, 1) is E.NONE, "as much as the member's protocols"
    for generation in range(2, 5):
        driver.join(member, version=3, protocols=offering(50_000))
        driver.advance(0)
        assert assign(60_000, generation) is E.COORDINATOR_NOT_AVAILABLE
        assert assign(50_000, generation) is E.NONE


def test_partitions_of_the_consumer_protocol_count_before_the_next_member() -> None:
    bench = Bench()
    bench.image = image(topic("t", T_ID, 1000))
    driver = bench.driver = Driver(GroupSettings(members_max_bytes=300_000), topics=bench.driver.topics)

    def beat(group: str, epoch: int, names: str = "t", regex: str | None = None) -> Any:
        request = ConsumerHeartbeat(
            GroupId(group), MemberId("a"), epoch, None, None, 1000, frozenset(map(TopicName, names)), regex, owned={}
        )
        token = driver.token()
        return driver.carry_out(driver.shard.consumer_heartbeat(request, token, driver.now_ms), token)

    assert beat("g", 0).error_code is E.NONE
    assert beat("h", 0, names="u").error_code is E.NONE
    assert beat("i", 0).error_code is E.NONE
    assert beat("j", 0).error_code is E.COORDINATOR_NOT_AVAILABLE
    assert beat("g", 2).error_code is E.NONE, "a member goes on"
    assert beat("h", 2, names="t").error_code is E.COORDINATOR_NOT_AVAILABLE, "it would get partitions"
    assert beat("h", 2, names="", regex="t").error_code is E.COORDINATOR_NOT_AVAILABLE
    assert beat("g", -1).error_code is E.NONE
    assert beat("j", 0).error_code is E.NONE


def test_all_shards_of_a_broker_share_the_bound() -> None:
    memory, settings = MemberMemory(), GroupSettings(initial_rebalance_delay_ms=3000, members_max_bytes=100_000)
    full, other = (Driver(settings, memory=memory) for _ in range(2))
    for name in "abc":
        full.join(name=name, version=3, protocols=offering(30_000))
    assert other.join(name="d", version=3, protocols=offering(30_000)).error_code is E.COORDINATOR_NOT_AVAILABLE
    full.shard.unloaded(full.now_ms)
    assert other.join(name="d", version=3, protocols=offering(30_000)) is None


def test_members_without_a_common_protocol_are_told_apart_without_comparing_all_with_all() -> None:
    took_s = []
    for count in (1_000, 8_000):
        driver = Driver()
        driver.join(name="a", version=3, protocols=tuple(Protocol(f"a{index}", b"") for index in range(count)))
        others = tuple(Protocol(f"b{index}", b"") for index in range(count))
        started_s = time.thread_time()
        assert driver.join(name="b", version=3, protocols=others).error_code is E.INCONSISTENT_GROUP_PROTOCOL
        took_s.append(time.thread_time() - started_s)
    assert took_s[1] < 32 * took_s[0] + 0.01, "eight times as many: not sixty-four times as long"
