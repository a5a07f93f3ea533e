"""``broker.faults``: failures that a test injects into its broker, from any thread, with any client.

Every method activates one fault and returns it. A fault lists the requests it has hit (``hits``, ``wait``), and ends
with ``remove()``, its ``with`` block, ``clear`` or ``Broker.reset``.

Requests are selected by API (Kafka's names: ``"Produce"``, ``"EndTxn"``; None: any), ``client_id``,
``transactional_id``, ``group_id`` and ``topic``. The first ``skip`` matching requests are spared, the next ``times``
are hit (None: all until the fault is removed). ``when="before"`` hits a request before it takes effect;
``when="after"`` after it has, as durably as configured, but before its response leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, Protocol, TypedDict, Unpack

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.testing.faults.fault import Fault, Hit, RequestFault
from oncelog.testing.faults.hanging import HangingTransaction, leave_hanging
from oncelog.testing.faults.interception import FOREVER_MS, Interception
from oncelog.testing.faults.matching import Match, api_names, is_after
from oncelog.testing.faults.refusals import error_of

if TYPE_CHECKING:
    from oncelog.runtime.server import Server

When = Literal["before", "after"]
Apis = str | Iterable[str] | None


class Which(TypedDict, total=False):
    """The properties that select requests."""

    client_id: str
    transactional_id: str
    group_id: str
    topic: str


class Host(Protocol):
    """The broker that the faults affect."""

    @property
    def bootstrap_servers(self) -> str: ...

    def on_loop(self, work: Callable[[Server], None]) -> bool: ...

    def die(self, fault: Fault, hit: Hit, down_s: float | None) -> None:
        """Kill the broker at once, like ``kill -9``; called on the loop."""

    def revive(self) -> None: ...


class Faults:
    def __init__(self, host: Host) -> None:
        self._host = host
        # Faults that kill the broker, with the seconds that it stays down.
        self._deadly: dict[Fault, float | None] = {}
        self._in_force: dict[Fault, None] = {}
        self._sync: dict[Fault, Callable[[Fault], None]] = {}
        self.interception = Interception(self._die)

    def kill(
        self, api: Apis, when: When = "before", *, down_s: float | None = 0.0, skip: int = 0, **which: Unpack[Which]
    ) -> Fault:
        """Kill the broker, like ``kill -9``, at the next matching request. It restarts after ``down_s`` seconds of real
        time with the same port and data; None: at ``broker.start()`` or the end of the fault."""
        match, after = self._match(api, which), is_after(when)
        fault = self._new(f"kill the broker {when} {match}")
        self._deadly[fault] = down_s
        return self._add(RequestFault(fault, match, after, skip, 1, kill=True))

    def drop(
        self,
        api: Apis,
        when: When = "after",
        *,
        times: int | None = 1,
        skip: int = 0,
        **which: Unpack[Which],
    ) -> Fault:
        """Close the connection instead of responding: ``after`` loses the response, ``before`` the request."""
        fault = self._new(f"drop {'the answer to' if is_after(when) else ''} {self._match(api, which)}")
        return self._add(RequestFault(fault, self._match(api, which), is_after(when), skip, times, drop=True))

    def delay(
        self,
        api: Apis,
        seconds: float,
        when: When = "before",
        *,
        times: int | None = 1,
        skip: int = 0,
        **which: Unpack[Which],
    ) -> Fault:
        """Delay a request, or its response, and everything after it on the connection, in the broker's time."""
        match = self._match(api, which)
        fault = self._new(f"delay {match} by {seconds:g} s")
        delay_ms = round(seconds * 1000)
        return self._add(RequestFault(fault, match, is_after(when), skip, times, delay_ms=delay_ms))

    def hold(
        self,
        api: Apis,
        when: When = "before",
        *,
        times: int | None = 1,
        skip: int = 0,
        **which: Unpack[Which],
    ) -> Fault:
        """Hold a request, or its response, until the fault is removed; see :meth:`delay`."""
        match = self._match(api, which)
        fault = self._new(f"hold {match}")
        return self._add(RequestFault(fault, match, is_after(when), skip, times, delay_ms=FOREVER_MS))

    def answer(
        self,
        api: Apis,
        error: str | int,
        when: When = "before",
        *,
        times: int | None = 1,
        skip: int = 0,
        **which: Unpack[Which],
    ) -> Fault:
        """Respond with an error, by Kafka's name or number (``"NOT_LEADER_OR_FOLLOWER"``, 6), for every part of the
        request. With ``after`` it still takes effect. Raises ValueError for an unknown error."""
        match, code = self._match(api, which), error_of(error)
        fault = self._new(f"answer {match} with {code.name}")
        return self._add(RequestFault(fault, match, is_after(when), skip, times, error=code))

    def no_leader(self, topic: str, partition: int = 0) -> Fault:
        """Leave a partition without a leader, also in Metadata: produce and fetch requests for it fail."""
        fault = self._new(f"no leader for {topic}-{partition}")
        key = TopicPartition(TopicName(topic), partition)
        self._change(fault, lambda: self.interception.leaderless.update({fault: key}))
        return fault

    def stall(self, when: When = "before", **which: Unpack[Which]) -> Fault:
        """Let open connections hang until the fault is removed: requests are not executed (``before``) or not answered
        (``after``)."""
        return self.hold(None, when, times=None, **which)

    def cut(self, client_id: str | None = None) -> Fault:
        """Close all connections, or those of one client, now and whenever they are reopened."""
        fault = self._new(f"cut {'every client' if client_id is None else client_id} off")
        self._change(fault, lambda: self.interception.cuts.update({fault: client_id}))
        self._host.on_loop(lambda server: self.interception.cut(server, fault))
        return fault

    def slow_sync(self, seconds: float) -> Fault:
        """Delay every sync by this much (real time). acks=all waits for it with ``log.sync.policy=commit``."""
        fault = self._new(f"syncs that take {seconds:g} s")
        return self._on_sync(fault, lambda fault: fault.until_removed(seconds))

    def fail_sync(self) -> Fault:
        """Let the next sync fail, which stops the broker: the page cache is not reliable afterwards. ``broker.start()``
        recovers from the disk."""
        fault = self._new("a sync that fails")
        self._deadly[fault] = None
        return self._on_sync(fault, self._fail)

    def hang_transaction(
        self, topic: str, partition: int = 0, *, transactional_id: str = "hanging", value: bytes = b"late"
    ) -> HangingTransaction:
        """Create a hanging transaction: a record arrives after its coordinator has ended the transaction, and reopens
        it on the partition, as brokers without KIP-890's verification allow. read_committed readers stop there until an
        administrator, or the end of this fault, aborts it.

        The id is fenced only if it was never used. Raises RuntimeError if it has an open transaction.
        """
        fault = HangingTransaction(f"a hanging transaction on {topic}-{partition}", self._healed)
        self._in_force[fault] = None
        topic_partition = TopicPartition(TopicName(topic), partition)
        try:
            leave_hanging(fault, self._host, topic_partition, transactional_id, value)
        except BaseException:
            self._in_force.pop(fault)
            raise
        fault.struck(Hit("Produce", None, transactional_id))
        return fault

    def clear(self) -> None:
        """End all faults."""
        for fault in list(self._in_force):
            fault.remove()

    def before_sync(self) -> None:
        """Called by the broker's workers before each sync."""
        for fault, strike in list(self._sync.items()):
            fault.struck(Hit("", None))
            strike(fault)

    def _match(self, api: Apis, which: Which) -> Match:
        return Match(api_names(api), **which)

    def _new(self, description: str) -> Fault:
        return Fault(description, self._healed)

    def _add(self, rule: RequestFault) -> Fault:
        self._change(rule.fault, lambda: self.interception.requests.append(rule))
        return rule.fault

    def _on_sync(self, fault: Fault, strike: Callable[[Fault], None]) -> Fault:
        self._change(fault, lambda: self._sync.update({fault: strike}))
        return fault

    def _change(self, fault: Fault, change: Callable[[], None]) -> None:
        # Activate a fault, on the loop if there is one, so that each event sees the change whole.
        self._in_force[fault] = None
        if not self._host.on_loop(lambda _server: change()):
            change()

    def _die(self, fault: Fault, hit: Hit) -> None:
        self._host.die(fault, hit, self._deadly.get(fault))

    def _fail(self, fault: Fault) -> None:
        self._sync.pop(fault, None)
        raise OSError(5, f"Input/output error ({fault.description})")

    def _healed(self, fault: Fault) -> None:
        self._in_force.pop(fault, None)
        self._sync.pop(fault, None)

        def heal() -> None:
            interception = self.interception
            interception.requests = [rule for rule in interception.requests if rule.fault is not fault]
            interception.leaderless.pop(fault, None)
            interception.cuts.pop(fault, None)

        def heal_and_wake(server: Server) -> None:
            heal()
            if isinstance(fault, HangingTransaction):
                fault.abort(server)
            self.interception.wake_held(server)

        if not self._host.on_loop(heal_and_wake):
            heal()
        if fault in self._deadly:
            self._deadly.pop(fault)
            self._host.revive()
