"""A broker that is killed under members of a share group: what was acknowledged and answered never comes again."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.interop.share.servers import SERVERS, Queue, Server, values
from tests.peers.clients.share_member import KINDS, Delivered, ShareFailure, ShareMember
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.integration]
_MANY = 60


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.java), "oncelog"])
def mortal(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A broker of the test's own."""
    with SERVERS[request.param]() as running:
        yield running


class Worker(threading.Thread):
    """Accepts record after record, each with a commit of its own, until the broker no longer answers."""

    def __init__(self, member: ShareMember) -> None:
        super().__init__(daemon=True)
        self._member = member
        self.accepted: set[str] = set()
        """Values whose acknowledgement the broker has answered."""

    def run(self) -> None:
        try:
            while True:
                for record in self._member.poll():
                    self._accept(record)
        except (ShareFailure, RuntimeError):
            return

    def _accept(self, record: Delivered) -> None:
        self._member.acknowledge("accept", record)
        if self._member.commit() == {0: None}:
            self.accepted.add(record.value)


@pytest.mark.parametrize("kind", [pytest.param("java", marks=pytest.mark.java), "confluent"])
def test_no_answered_acknowledgement_is_lost(kind: str, mortal: Server) -> None:
    assert kind in KINDS
    queue = Queue(mortal)
    queue.put(*map(str, range(_MANY)))
    with queue.member(kind, most=1) as member:
        worker = Worker(member)
        worker.start()
        wait_until(lambda: len(worker.accepted) >= _MANY // 3, "some acknowledgements")
        mortal.kill()
        accepted = set(worker.accepted)
        member.kill()
        worker.join()
    mortal.start()
    queue.put("last")
    with queue.member(kind) as member:
        seen: set[str] = set()

        def is_all() -> bool:
            records = member.poll()
            member.acknowledge("accept", *records)
            seen.update(values(records))
            # One acknowledgement may have been carried out without its answer.
            return "last" in seen and len(seen | worker.accepted) >= _MANY

        wait_until(is_all, lambda: f"all records: {len(seen)} came, {len(accepted)} were accepted")
        assert not seen & accepted
