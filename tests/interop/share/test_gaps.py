"""Records that compaction and DeleteRecords take away while members hold them: the group goes on behind them."""

from __future__ import annotations

import pytest

from oncelog.admin.share_groups import share_offsets
from oncelog.client.blocking import Client
from tests.interop.share.servers import Queue, Server, values
from tests.load import read_to_end
from tests.peers.clients.share_member import Delivered, ShareMember
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.integration]
_COMPACTED = {"cleanup_policy": "compact", "segment_ms": "1", "min_cleanable_dirty_ratio": "0.01"}


def _stored(queue: Queue) -> list[int]:
    """The offsets that the log still has; every record has the same key."""
    messages = read_to_end(queue.server.bootstrap_servers, queue.topic, [0])
    return [offset for message in messages if (offset := message.offset()) is not None]


def _accept_until(member: ShareMember, last: str) -> list[Delivered]:
    """Accept what comes until the record has come; all of it."""
    taken: list[Delivered] = []

    def is_there() -> bool:
        records = member.poll()
        member.acknowledge("accept", *records)
        taken.extend(records)
        return last in values(taken)

    wait_until(is_there, lambda: f"{last} after {values(taken)}")
    assert set(member.commit().values()) <= {None}
    return taken


def _expect_no_lag(queue: Queue) -> None:
    with Client(queue.server.bootstrap_servers) as client:
        wait_until(
            lambda: [row.lag for row in share_offsets(client, queue.group)] == [0],
            lambda: f"no lag: {share_offsets(client, queue.group)}",
        )


def test_records_in_flight_are_compacted_away(kind: str, server: Server) -> None:
    queue = Queue(server, topic_configs=_COMPACTED)
    queue.put_batch(*map(str, range(6)))
    with queue.member(kind) as member:
        held = member.take(6)
        queue.put("next")  # the batch is no longer in the active segment
        wait_until(lambda: _stored(queue) == [5, 6], lambda: f"compaction: {_stored(queue)}")
        member.acknowledge("release", *held)
        assert set(member.commit().values()) == {None}
        again = _accept_until(member, "next")
        assert [(record.offset, record.deliveries) for record in sorted(again)] == [(5, 2), (6, 1)]
        queue.put("last")
        assert values(_accept_until(member, "last")) == ["last"]
    _expect_no_lag(queue)


def test_records_are_deleted_behind_the_window(kind: str, server: Server) -> None:
    queue = Queue(server)
    queue.put(*map(str, range(6)))
    with queue.member(kind, most=2) as member:
        held = member.take(1)
        queue.delete_before(5)
        member.acknowledge("release", *held)
        member.commit()
        taken = _accept_until(member, "5")
        assert all(record.offset == 5 or record.deliveries == 1 for record in taken), taken
        queue.put("last")
        assert values(_accept_until(member, "last")) == ["last"]
    _expect_no_lag(queue)
