"""The coordination tree as a host of its own, and the sessions that brokers have with it over a path that may be cut.

Between a broker's machine and the host of the tree lies a path of two directions (``Network.cut``). Over it go requests
(commits, questions what became of one, loads), heartbeats, answers, and the changes that were committed, each direction
in order. What follows from the rules of ZooKeeper, which these are:

1. A session ends when the tree has heard nothing of it for its time-out (virtual time at the tree, whatever the clock
   of the machine says). Its ephemeral nodes vanish then, while the broker may believe in it for long.
2. The broker learns of the end when an answer of the tree reaches it again, and not before.
3. A broker that hears nothing from one heartbeat to the next (a third of the time-out) gives its connection up and
   opens another: a request that has no answer by then has an unknown outcome (done, and the answer lost; or not done).
4. Once the tree has answered on a new connection, nothing of an older one can happen any more. Until then it can.
5. A broker that has learnt of the end asks for a new session, which takes the place of the old one. When that answer is
   lost, it asks again: the tree ends the session that the broker does not know of and begins another.

A session without a time-out (None) sends no heartbeats and never ends by itself: the tree of a world of one broker.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

from oncelog.coordination.commit_order import Listener
from oncelog.coordination.memory import MemorySession, MemoryTree
from oncelog.ports import CommittedChange
from oncelog.sim.virtual.kernel import Kernel, ScheduledCall
from oncelog.sim.virtual.machine import Machine
from oncelog.sim.virtual.network.conditions import RETRANSMISSION_US, HostPair

TREE: Final = "tree"
"""The tree's name as a host of the network."""
HEARTBEATS: Final = 3
"""Heartbeats in a time-out."""


class NoAnswer(Enum):
    """The reason why a request to the tree has no answer."""

    UNKNOWN = "the answer of the coordination tree was lost: carried out or not"
    SESSION_LOST = "the session with the coordination tree has ended: not carried out"


class TreeUnreachable(Exception):
    """No session could be opened: the path to the tree is cut."""


class Cuts(Protocol):
    """The network as paths to the tree use it."""

    def is_cut(self, pair: HostPair) -> bool:
        """True while nothing gets through from a host to another."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A request on its way. ``access`` is called at the tree, ``answered`` with what it returned, or with NoAnswer."""

    access: Callable[[], Any]
    answered: Callable[[Any], None]
    renews: bool


class TreeHost:
    """The host of the tree. ``timeout_ms``: of the sessions that are opened from now on."""

    def __init__(self, kernel: Kernel, network: Cuts, tree: MemoryTree, timeout_ms: int | None = None) -> None:
        self.kernel = kernel
        self.network = network
        self.tree = tree
        self.timeout_ms = timeout_ms
        self.outlives_processes = False
        """The session of a process that dies ends with its time-out only, as ZooKeeper's do; a tree on the same host
        sees the death."""

    def open_session(self, machine: Machine) -> TreeSession:
        """A session for a process that starts on a machine. Raises TreeUnreachable."""
        if self.network.is_cut((machine.name, TREE)) or self.network.is_cut((TREE, machine.name)):
            raise TreeUnreachable(f"{machine.name} cannot reach the coordination tree")
        return TreeSession(self, machine, self.tree.session(), self.timeout_ms)


class _Pipe:
    """One direction of a path: calls arrive in the order they were sent; held while the direction is cut."""

    def __init__(self, kernel: Kernel, network: Cuts, pair: HostPair) -> None:
        self._kernel = kernel
        self._network = network
        self._pair = pair
        self._last_us = 0
        self._on_the_way = 0
        self._held: deque[Callable[[], None]] = deque()

    def send(self, delay_us: int, call: Callable[[], None]) -> None:
        """Make the call after a delay, and not before those that were sent earlier."""
        self._last_us = max(self._last_us, self._kernel.now_us + delay_us)
        if not self._on_the_way and self._last_us == self._kernel.now_us:
            self._arrive(call)
        else:
            self._on_the_way += 1
            self._kernel.at(self._last_us, self._arrived, call)

    def _arrived(self, call: Callable[[], None]) -> None:
        self._on_the_way -= 1
        self._arrive(call)

    def _arrive(self, call: Callable[[], None]) -> None:
        if not self._held and not self._network.is_cut(self._pair):
            call()
            return
        self._held.append(call)
        if len(self._held) == 1:
            self._kernel.after(RETRANSMISSION_US, self._again)

    def _again(self) -> None:
        while self._held and not self._network.is_cut(self._pair):
            self._held.popleft()()
        if self._held:
            self._kernel.after(RETRANSMISSION_US, self._again)


class TreeSession:
    """A broker's session, the broker's end and the tree's. See the module."""

    def __init__(self, host: TreeHost, machine: Machine, reads: MemorySession, timeout_ms: int | None) -> None:
        self.reads = reads
        """Reads the tree at once, as a process does that starts and may wait."""
        self.timeout_us = None if timeout_ms is None else timeout_ms * 1_000
        self.expired = False
        """The tree has ended it, whether the broker knows or not."""
        self.lost = False
        """The broker knows that it has ended."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called when the broker learns that the session has ended."""
        self._kernel = host.kernel
        self._machine = machine
        self._outlives_processes = host.outlives_processes
        self._up = _Pipe(host.kernel, host.network, (machine.name, TREE))
        self._down = _Pipe(host.kernel, host.network, (TREE, machine.name))
        self._chance: random.Random = host.kernel.entropy(f"tree {machine.name}")
        self._closed = False
        self._connection = 1
        """The broker's connection, by number; answers on older ones are not listened to."""
        self._connection_at_tree = 1
        """The newest from which the tree has heard; older ones are refused."""
        self._pending: deque[_Request] = deque()
        """Requests that have no answer yet."""
        self._answer_to_lose: bool | None = None
        """The answer to the next request is lost: after it was done (True), or together with the request (False)."""
        self._is_at_tree = False
        """True while the tree carries out a request of this session."""
        self._heartbeat_unanswered = False
        """The broker has heard nothing of the tree since it sent its last heartbeat."""
        self._expiry: ScheduledCall | None = None
        if self.timeout_us is not None:
            self._heard_at_tree()
            self._kernel.after(self.timeout_us // HEARTBEATS, self._heartbeat)

    # The broker's end

    def ask(self, access: Callable[[], T], answered: Callable[[T | NoAnswer], None], *, renews: bool = False) -> None:
        """Call ``access`` at the tree, and ``answered`` with its result, or with NoAnswer: once, later, unless the
        process dies before. With ``renews`` a new session is begun before, as ``access`` goes on to do with ``reads``.
        """
        if self.lost and not renews:
            self._kernel.soon(answered, NoAnswer.SESSION_LOST)
            return
        request, connection = _Request(access, answered, renews), self._connection
        self._pending.append(request)
        delay_us = self._machine.takes(self._machine.latencies.metadata_us)
        self._up.send(delay_us, lambda: self._request_at_tree(connection, request))

    def follow(self, after: int, listener: Listener) -> None:
        """Deliver the committed changes behind a position in order, each after the delay of the path; own ones
        immediately before the answer to their commit, which has had its delay on the way up."""

        def committed(change: CommittedChange) -> None:
            delay_us = 0 if self._is_at_tree else self._one_way_us() + self._machine.changes_late_us
            self._down.send(delay_us, lambda: self._deliver(listener, change))

        self.reads.follow(after, committed)

    def close(self) -> None:
        """The process is gone: the session ends at once, and nobody is told of anything any more."""
        self._closed = True
        self._pending.clear()
        self._end_at_tree()

    def abandon(self) -> None:
        """The process has died: the tree may learn of it from nothing but its silence."""
        if self._outlives_processes and self.timeout_us is not None:
            self._closed = True
            self._pending.clear()
        else:
            self.close()

    def _deliver(self, listener: Listener, change: CommittedChange) -> None:
        if not self._closed:
            listener(change)

    def _heartbeat(self) -> None:
        """Tell the tree that the process lives, and find out if the tree can be reached, without a session, too."""
        if self._closed:
            return
        assert self.timeout_us is not None
        self._kernel.after(self.timeout_us // HEARTBEATS, self._heartbeat)
        if self._machine.frozen:
            return
        if self._heartbeat_unanswered:
            self._reconnect()
        self._heartbeat_unanswered = True
        connection = self._connection
        self._up.send(self._one_way_us(), lambda: self._heartbeat_at_tree(connection))

    def _one_way_us(self) -> int:
        return self._chance.randint(*self._machine.latencies.metadata_us) // 2

    def _reconnect(self) -> None:
        """Give the connection up: what is asked and not answered has an unknown outcome."""
        self._connection += 1
        self._give_up(NoAnswer.UNKNOWN)

    def _give_up(self, reason: NoAnswer) -> None:
        waiting, self._pending = self._pending, deque()
        for request in waiting:
            request.answered(reason)

    def _answer(self, connection: int, request: _Request | None, answer: object) -> None:
        """An answer of the tree has arrived."""
        if self._closed or connection != self._connection:
            return
        self._heartbeat_unanswered = False
        if answer is NoAnswer.SESSION_LOST:
            self._learn_of_end()
        elif request is not None and request in self._pending:
            self._pending.remove(request)
            if request.renews:
                self.lost = False
            request.answered(answer)

    def _learn_of_end(self) -> None:
        if self.lost:
            return
        self.lost = True
        self._give_up(NoAnswer.SESSION_LOST)
        self.on_lost()

    # The tree's end

    def _request_at_tree(self, connection: int, request: _Request) -> None:
        if self._closed or connection < self._connection_at_tree:
            return
        lose, self._answer_to_lose = self._answer_to_lose, None
        answer = None if lose is False else self._carry_out(connection, request)
        if lose is None:
            self._down.send(0, lambda: self._answer(connection, request, answer))
        else:
            self._reconnect()

    def _carry_out(self, connection: int, request: _Request) -> object:
        if request.renews:
            self._end_at_tree()
            self.expired = False
        if not self._accepts(connection):
            return NoAnswer.SESSION_LOST
        self._is_at_tree = True
        try:
            return request.access()
        finally:
            self._is_at_tree = False

    def _heartbeat_at_tree(self, connection: int) -> None:
        answer = None if self._accepts(connection) else NoAnswer.SESSION_LOST
        self._down.send(0, lambda: self._answer(connection, None, answer))

    def _accepts(self, connection: int) -> bool:
        """A request reached the tree: False when the session has ended, or has moved to a newer connection."""
        if self.expired or self._closed or connection < self._connection_at_tree:
            return False
        self._connection_at_tree = connection
        self._heard_at_tree()
        return True

    def _heard_at_tree(self) -> None:
        if self.timeout_us is not None:
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = self._kernel.after(self.timeout_us, self.expire)

    def _end_at_tree(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self.expired = True
        self.reads.close()

    # Faults

    def expire(self) -> None:
        """The tree ends the session: its ephemeral nodes vanish. The broker learns of it when it asks next."""
        if not self.expired:
            self._kernel.trace(f"session of {self._machine.name} expires")
            self._end_at_tree()

    def lose_next_answer(self, *, done: bool) -> None:
        """Break the connection at the next request: after it was carried out (``done``), or before."""
        self._answer_to_lose = done
