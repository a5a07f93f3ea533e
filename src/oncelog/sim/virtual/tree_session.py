"""The coordination tree as a host, and brokers' sessions with it over a path that may be cut.

The path between a broker's machine and the tree has two directions (``Network.cut``). It carries requests, heartbeats,
responses and committed changes, each direction in order, by ZooKeeper's rules. A session without a timeout (None) sends
no heartbeats and never expires: that of a single broker.
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

# The tree's host name in the network.
TREE: Final = "tree"
# Heartbeats per timeout.
HEARTBEATS: Final = 3
# The time within which a process that continues after a freeze sends a heartbeat that was due.
THAWED_US: Final = 100_000


class NoAnswer(Enum):
    """Why a request to the tree has no response."""

    UNKNOWN = "the answer of the coordination tree was lost: carried out or not"
    SESSION_LOST = "the session with the coordination tree has ended: not carried out"


class TreeUnreachable(Exception):
    """No session could be opened: the path to the tree is cut."""


class Cuts(Protocol):
    """The network as seen by paths to the tree."""

    def is_cut(self, pair: HostPair) -> bool: ...


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A request in flight. ``access`` is called at the tree, ``answered`` with its result or NoAnswer."""

    access: Callable[[], Any]
    answered: Callable[[Any], None]
    renews: bool


class TreeHost:
    """The host of the tree. ``timeout_ms``: of new sessions."""

    def __init__(self, kernel: Kernel, network: Cuts, tree: MemoryTree, timeout_ms: int | None = None) -> None:
        self.kernel = kernel
        self.network = network
        self.tree = tree
        self.timeout_ms = timeout_ms
        # A dead process's session ends only by its timeout, as with ZooKeeper; otherwise the tree sees the death at
        # once.
        self.outlives_processes = False
        # Its position can be read at once, cut or not, as that of a file of the host.
        self.is_near = False

    def open_session(self, machine: Machine) -> TreeSession:
        if self.network.is_cut((machine.name, TREE)) or self.network.is_cut((TREE, machine.name)):
            raise TreeUnreachable(f"{machine.name} cannot reach the coordination tree")
        return TreeSession(self, machine, self.tree.session(), self.timeout_ms)


class _Pipe:
    """One direction of a path, in order; a cut holds calls back."""

    def __init__(self, kernel: Kernel, network: Cuts, pair: HostPair) -> None:
        self._kernel = kernel
        self._network = network
        self._pair = pair
        self._last_us = 0
        self._in_flight = 0
        self._held: deque[Callable[[], None]] = deque()

    def send(self, delay_us: int, call: Callable[[], None]) -> None:
        self._last_us = max(self._last_us, self._kernel.now_us + delay_us)
        if not self._in_flight and self._last_us == self._kernel.now_us:
            self._arrive(call)
        else:
            self._in_flight += 1
            self._kernel.at(self._last_us, self._arrived, call)

    def _arrived(self, call: Callable[[], None]) -> None:
        self._in_flight -= 1
        self._arrive(call)

    def _arrive(self, call: Callable[[], None]) -> None:
        if not self._held and not self._network.is_cut(self._pair):
            call()
            return
        self._held.append(call)
        if len(self._held) == 1:
            self._kernel.after(RETRANSMISSION_US, self._retry)

    def _retry(self) -> None:
        while self._held and not self._network.is_cut(self._pair):
            self._held.popleft()()
        if self._held:
            self._kernel.after(RETRANSMISSION_US, self._retry)


class TreeSession:
    def __init__(self, host: TreeHost, machine: Machine, reads: MemorySession, timeout_ms: int | None) -> None:
        # Reads the tree at once: for a starting process, which may wait.
        self.reads = reads
        self.timeout_us = None if timeout_ms is None else timeout_ms * 1_000
        # The tree has ended it, whether the broker knows or not.
        self.expired = False
        # The broker knows that it has ended.
        self.lost = False
        # Called when the broker learns that the session has ended.
        self.on_lost: Callable[[], None] = lambda: None
        self._kernel = host.kernel
        self._machine = machine
        self._outlives_processes = host.outlives_processes
        self._is_near = host.is_near
        self._up = _Pipe(host.kernel, host.network, (machine.name, TREE))
        self._down = _Pipe(host.kernel, host.network, (TREE, machine.name))
        self._chance: random.Random = host.kernel.entropy(f"tree {machine.name}")
        self._closed = False
        # The broker's current connection; responses on older ones are ignored.
        self._connection = 1
        # The newest connection known to the tree; older ones are refused.
        self._connection_at_tree = 1
        # Requests without a response.
        self._pending: deque[_Request] = deque()
        # Lose the next response: after executing the request (True), or together with it (False).
        self._answer_to_lose: bool | None = None
        # True while the tree executes a request of this session.
        self._is_at_tree = False
        # True if no response has arrived since the last heartbeat.
        self._heartbeat_unanswered = False
        self._expiry: ScheduledCall | None = None
        if self.timeout_us is not None:
            self._restart_expiry()
            self._kernel.after(self.timeout_us // HEARTBEATS, self._heartbeat)

    def ask(self, access: Callable[[], T], answered: Callable[[T | NoAnswer], None], *, renews: bool = False) -> None:
        """Send a request: ``access`` is called at the tree, and ``answered`` once, later, with its result or NoAnswer;
        not if the process is dead. ``renews``: first begin a new session; ``access`` does so with ``reads``.
        """
        if self.lost and not renews:
            self._kernel.soon(answered, NoAnswer.SESSION_LOST)
            return
        request, connection = _Request(access, answered, renews), self._connection
        self._pending.append(request)
        delay_us = self._machine.takes(self._machine.latencies.metadata_us)
        self._up.send(delay_us, lambda: self._request_at_tree(connection, request))

    def position_at_once(self) -> int | None:
        """The tree's position, if it is near."""
        return self.reads.position_at_once() if self._is_near else None

    def follow(self, after: int, listener: Listener) -> None:
        """Deliver the committed changes after a position in order, each with the delay of the path."""

        def committed(change: CommittedChange) -> None:
            # An own change arrives just before the response to its commit, which had its delay on the way up.
            delay_us = 0 if self._is_at_tree else self._one_way_us() + self._machine.changes_late_us
            self._down.send(delay_us, lambda: self._deliver(listener, change))

        self.reads.follow(after, committed)

    def close(self) -> None:
        """The session ends at once, without further callbacks."""
        self._closed = True
        self._pending.clear()
        self._end_at_tree()

    def abandon(self) -> None:
        """The process has died: the tree may notice only its silence."""
        if self._outlives_processes and self.timeout_us is not None:
            self._closed = True
            self._pending.clear()
        else:
            self.close()

    def _deliver(self, listener: Listener, change: CommittedChange) -> None:
        if not self._closed:
            listener(change)

    def _heartbeat(self) -> None:
        # Show the tree that the process lives, and check that the tree can be reached, even without a session.
        if self._closed:
            return
        assert self.timeout_us is not None
        if self._machine.frozen:
            self._kernel.after(THAWED_US, self._heartbeat)  # due heartbeats are sent when the process continues
            return
        self._kernel.after(self.timeout_us // HEARTBEATS, self._heartbeat)
        # No response since the last heartbeat: reconnect.
        if self._heartbeat_unanswered:
            self._reconnect()
        self._heartbeat_unanswered = True
        connection = self._connection
        self._up.send(self._one_way_us(), lambda: self._heartbeat_at_tree(connection))

    def _one_way_us(self) -> int:
        return self._chance.randint(*self._machine.latencies.metadata_us) // 2

    def _reconnect(self) -> None:
        # Give up the connection: open requests have an unknown outcome.
        self._connection += 1
        self._give_up(NoAnswer.UNKNOWN)

    def _give_up(self, reason: NoAnswer) -> None:
        given_up, self._pending = self._pending, deque()
        for request in given_up:
            request.answered(reason)

    def _answer(self, connection: int, request: _Request | None, answer: object) -> None:
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
        # The broker learns of the expiry from the next response that reaches it, not before.
        if self.lost:
            return
        self.lost = True
        self._give_up(NoAnswer.SESSION_LOST)
        self.on_lost()

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
        # The response to an earlier renewal may be lost: the session that the broker never learnt of ends.
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
        # A request reached the tree. Returns False if the session has ended, or uses a newer connection.
        if self.expired or self._closed or connection < self._connection_at_tree:
            return False
        # From the tree's answer on a new connection on, requests of older ones have no effect. Until then they may.
        self._connection_at_tree = connection
        self._restart_expiry()
        return True

    def _restart_expiry(self) -> None:
        if self.timeout_us is not None:
            if self._expiry is not None:
                self._expiry.cancel()
            # In virtual time, whatever the machine's clock says. The broker may believe in the session for long.
            self._expiry = self._kernel.after(self.timeout_us, self.expire)

    def _end_at_tree(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self.expired = True
        self.reads.close()

    def expire(self) -> None:
        """The tree ends the session: its ephemeral nodes vanish. The broker learns of it from its next request."""
        if not self.expired:
            self._kernel.trace(f"session of {self._machine.name} expires")
            self._end_at_tree()

    def lose_next_answer(self, *, done: bool) -> None:
        """Break the connection at the next request, after its execution (``done``) or before."""
        self._answer_to_lose = done
