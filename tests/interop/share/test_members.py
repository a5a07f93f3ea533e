"""Members of a share group and what they see: every acknowledgement, locks that expire, members that are killed."""

from __future__ import annotations

import time

import pytest

from tests.interop.share.servers import LOCK_MS, Queue, Server, values
from tests.peers.clients.share_member import ShareMember
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.integration]
_QUIET_POLLS = 4
_MANY = 40
_LIMIT = "3"


def _nothing_comes(member: ShareMember) -> None:
    for _ in range(_QUIET_POLLS):
        assert member.poll() == []


def test_two_members_share_a_partition(kind: str, server: Server) -> None:
    queue = Queue(server)
    queue.put(*map(str, range(_MANY)))
    taken: set[str] = set()
    with queue.member(kind, most=5) as first, queue.member(kind, most=5) as second:

        def is_all() -> bool:
            for member in (first, second):
                records = member.poll()
                assert not taken & set(values(records))
                member.acknowledge("accept", *records)
                taken.update(values(records))
            return len(taken) == _MANY

        wait_until(is_all, "all records")
        assert all(error is None for member in (first, second) for error in member.commit().values())
        _nothing_comes(first)
        _nothing_comes(second)


def test_each_kind_of_acknowledgement(kind: str, server: Server) -> None:
    queue = Queue(server)
    queue.put("accepted", "released", "rejected")
    with queue.member(kind) as member:
        accepted, released, rejected = sorted(member.take(3))
        assert [record.deliveries for record in (accepted, released, rejected)] == [1, 1, 1]
        member.acknowledge("accept", accepted)
        member.acknowledge("release", released)
        member.acknowledge("reject", rejected)
        assert set(member.commit().values()) == {None}
        (again,) = member.take(1)
        assert (again.value, again.deliveries) == ("released", 2)
        member.acknowledge("accept", again)
        assert set(member.commit().values()) == {None}
        _nothing_comes(member)


def test_implicit_acknowledgement(kind: str, server: Server) -> None:
    queue = Queue(server)
    queue.put("one", "two")
    with queue.member(kind, mode="implicit") as member:
        assert values(member.take(2)) == ["one", "two"]
        assert set(member.commit().values()) <= {None}
        member.leave()
    queue.put("three")
    with queue.member(kind, mode="implicit") as member:
        assert values(member.take(1)) == ["three"]


def test_a_record_is_archived_after_its_last_delivery(kind: str, server: Server) -> None:
    queue = Queue(server, share_delivery_count_limit=_LIMIT)
    queue.put("poison", "good")
    with queue.member(kind) as member:
        counts: list[int] = []
        while len(counts) < int(_LIMIT):
            for record in member.poll():
                member.acknowledge("release" if record.value == "poison" else "accept", record)
                counts += [record.deliveries] if record.value == "poison" else []
            member.commit()
        assert counts == [1, 2, 3]
        _nothing_comes(member)


def test_dead_letters(kind: str, server: Server) -> None:
    queue = Queue(server)
    dead = Queue(server)
    queue.configure(
        errors_deadletterqueue_topic_name=f"dlq.{queue.topic}", errors_deadletterqueue_copy_record_enable="true"
    )
    queue.put("bad", "good")
    with queue.member(kind) as member:
        bad, good = sorted(member.take(2))
        member.acknowledge("reject", bad)
        member.acknowledge("accept", good)
        assert set(member.commit().values()) == {None}
    dead.topic = f"dlq.{queue.topic}"
    with dead.member(kind) as member:
        assert values(member.take(1)) == ["bad"]


def test_an_expired_lock_gives_the_records_to_another(kind: str, server: Server) -> None:
    queue = Queue(server, share_record_lock_duration_ms=str(LOCK_MS))
    queue.put("slow")
    with queue.member(kind) as slow, queue.member(kind) as other:
        (record,) = slow.take(1)
        (again,) = other.take(1)
        assert (again.offset, again.deliveries) == (record.offset, 2)
        other.acknowledge("accept", again)
        assert set(other.commit().values()) == {None}


@pytest.mark.parametrize("kind", [pytest.param("java", marks=pytest.mark.java)])
def test_a_renewed_lock_holds(kind: str, server: Server) -> None:
    """librdkafka has no renewal, and franz-go accepts at the next poll what was renewed."""
    queue = Queue(server, share_record_lock_duration_ms=str(LOCK_MS))
    queue.put("long")
    with queue.member(kind) as busy, queue.member(kind) as idle:
        (record,) = busy.take(1)
        began, gap_s = time.monotonic(), 0.0
        renewed = began
        while time.monotonic() - began < 2.5 * LOCK_MS / 1000:
            busy.acknowledge("renew", record)
            assert set(busy.commit().values()) == {None}
            gap_s, renewed = max(gap_s, time.monotonic() - renewed), time.monotonic()
            busy.poll(0)
            assert idle.poll(200) == [] or gap_s > LOCK_MS / 2000
        busy.acknowledge("accept", record)
        assert set(busy.commit().values()) == {None}


@pytest.mark.parametrize(
    "kind", [pytest.param("java", marks=pytest.mark.java), pytest.param("go", marks=pytest.mark.peer("go"))]
)
def test_a_record_limit_splits_a_batch(kind: str, server: Server) -> None:
    queue = Queue(server)
    queue.put_batch(*map(str, range(10)))
    settings = {"acquire": "record-limit", "most": 3}
    with queue.member(kind, **settings) as first, queue.member(kind, **settings) as second:
        some = first.take(1)
        assert len(some) <= 3
        others = second.take(1)
        assert not set(values(some)) & set(values(others))


def test_what_a_killed_member_held_comes_at_once(kind: str, server: Server) -> None:
    queue = Queue(server, share_record_lock_duration_ms="60000")
    queue.put("held")
    with queue.member(kind) as held, queue.member(kind) as other:
        held.take(1)
        held.kill()
        (again,) = other.take(1)
        assert (again.value, again.deliveries) == ("held", 2)


def test_what_a_leaving_member_holds_is_released(kind: str, server: Server) -> None:
    queue = Queue(server, share_record_lock_duration_ms="60000")
    queue.put("left")
    with queue.member(kind) as leaving:
        leaving.take(1)
        leaving.leave()
    with queue.member(kind) as other:
        (again,) = other.take(1)
        assert again.value == "left"


def test_the_log_start_moves_under_the_window(kind: str, server: Server) -> None:
    queue = Queue(server)
    queue.put(*map(str, range(6)))
    with queue.member(kind) as member:
        records = sorted(member.take(6))
        queue.delete_before(3)
        member.acknowledge("release", *records)
        member.commit()
        again: set[str] = set()

        def is_all() -> bool:
            polled = member.poll()
            member.acknowledge("accept", *polled)
            again.update(values(polled))
            return {"3", "4", "5"} <= again

        wait_until(is_all, "the records that are left")
