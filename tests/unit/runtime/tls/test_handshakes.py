"""Too many handshakes: one whose turn it is never goes, and each address has its share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from oncelog.runtime.tls.handshakes import DISPLACED, Handshakes
from tests.waiting import wait_until


class Peer:
    """A connection in its handshake."""

    def __init__(self, handshakes: Handshakes, address: str = "192.0.2.1") -> None:
        self.peer = f"{address}:5000"
        self.is_open = True
        self.answered = 0
        self._handshakes = handshakes
        handshakes.begin(self)

    def abort(self) -> None:
        self.is_open = False

    def sends(self, work: Callable[[], None] = lambda: None) -> None:
        """Its bytes arrive, and a worker has to compute."""

        def compute() -> Callable[[], None]:
            work()
            return self._computed

        self._handshakes.step(self, compute)

    def _computed(self) -> None:
        self.answered += 1


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def handshakes(most: int) -> Handshakes:
    return Handshakes(asyncio.get_running_loop(), timeout_s=600, most=most)


def test_the_oldest_that_waits_for_its_peer_makes_room() -> None:
    async def scenario() -> None:
        made = handshakes(4)
        silent = [Peer(made) for _ in range(4)]
        newest = Peer(made)
        assert [peer.is_open for peer in (*silent, newest)] == [False, True, True, True, True]
        assert (made.under_way, made.outcomes[DISPLACED]) == (4, 1)
        made.close()

    asyncio.run(scenario())


def test_an_address_with_many_makes_room_for_one_with_few() -> None:
    async def scenario() -> None:
        made = handshakes(4)
        first = Peer(made, "192.0.2.9")
        many = [Peer(made) for _ in range(3)]
        second = Peer(made, "192.0.2.9")
        assert first.is_open, "older, but its address has fewer"
        assert [peer.is_open for peer in (*many, second)] == [False, True, True, True]
        made.close()

    asyncio.run(scenario())


def test_those_that_wait_for_a_worker_keep_their_turn_and_the_newest_is_refused() -> None:
    async def scenario() -> None:
        made = handshakes(16)
        is_free, busy = threading.Event(), [threading.Event() for _ in range(2)]

        def held(has_begun: threading.Event) -> None:
            has_begun.set()
            is_free.wait()

        queued = [Peer(made) for _ in range(4)]
        for peer, has_begun in zip(queued, busy, strict=False):
            peer.sends(lambda has_begun=has_begun: held(has_begun))  # type: ignore[misc]  # its default is the event
        for has_begun in busy:
            wait_until(has_begun.is_set, "a worker takes the step")
        for peer in queued[2:]:
            peer.sends()
        late, other = Peer(made), Peer(made, "192.0.2.9")
        late.sends()
        assert not late.is_open
        other.sends()
        assert other.is_open
        assert [peer.is_open for peer in queued] == [True, True, True, False], "an address with one has its share"
        is_free.set()
        await until(lambda: sum(peer.answered for peer in (*queued, other)) == 4)
        assert (queued[3].answered, late.answered) == (0, 0), "no worker computes for who is gone"
        made.close()

    asyncio.run(scenario())


def test_a_second_step_is_never_refused() -> None:
    async def scenario() -> None:
        made = handshakes(4)
        first, second = Peer(made), Peer(made)
        for peer in (first, second):
            peer.sends()
            await until(lambda peer=peer: peer.answered == 1)  # type: ignore[misc]  # its default is the peer
        first.sends()
        second.sends()
        await until(lambda: first.answered == second.answered == 2)
        assert (first.is_open, second.is_open) == (True, True)
        made.close()

    asyncio.run(scenario())
