"""The journal of the ZooKeeper tree: one node for each commit, created in the commit's own transaction.

``/oncelog_tree`` belongs to the adapter and is no part of the tree that brokers see:

- ``changes/cN``: the commit at position N + 1: a line of JSON (format, token, session) and the changes
  (``change_codec``). ZooKeeper numbers them (sequential nodes) by how many were created: no number is left out.
- ``changes`` itself holds the first position that is kept.
- ``sessions/S``: the ephemeral nodes of a session, as JSON. ``alive/S``: ephemeral; it goes with the session, and each
  commit checks that it is there.

The rule: whoever reads the journal waits for the next position to be created (``exists`` with a watch), so that
following costs nothing while nothing happens. Entries that were trimmed before they were read, or that cannot be read,
are a gap.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

from oncelog.coordination.change_codec import DamagedJournal, decode_changes, encode_changes
from oncelog.coordination.commit_order import KEPT, ChangeStream, Ended, Listener
from oncelog.coordination.zookeeper.access import JOURNAL
from oncelog.coordination.zookeeper.client import Refused, Watch, ZooKeeperClient
from oncelog.ports import ANY_VERSION, Change, CommittedChange, Delete, OutcomeUnknown, Set

ROOT: Final = JOURNAL
CHANGES: Final = f"{ROOT}/changes"
NEXT_CHANGE: Final = f"{CHANGES}/c"
SESSIONS: Final = f"{ROOT}/sessions"
ALIVE: Final = f"{ROOT}/alive"
BASE: Final = (ROOT, CHANGES, SESSIONS, ALIVE)
KEPT_BYTES: Final = 16 << 20
TRIM_EVERY: Final = 200
_DELETES: Final = 500
"""Entries that one transaction removes."""
_AHEAD: Final = 32
"""Entries that are read side by side by whoever is behind."""
_FORMAT: Final = 1
_FOLLOWER: Final = 0
"""A connection has one session, and that one follower."""


def change_path(position: int) -> str:
    """The node of a position."""
    return f"{NEXT_CHANGE}{position - 1:010d}"


def position_of(name: str) -> int:
    """The position of a node of the journal, by its name or its path."""
    return int(name[-10:]) + 1


def encode_entry(token: str, session: str, changes: Iterable[Change]) -> bytes:
    """A commit as its node holds it."""
    header = json.dumps({"format": _FORMAT, "token": token, "session": session}, separators=(",", ":"))
    return header.encode() + b"\n" + encode_changes(changes)


def decode_entry(position: int, data: bytes) -> CommittedChange:
    """The commit that the node of a position holds. Raises DamagedJournal."""
    line, _, changes = data.partition(b"\n")
    try:
        header = json.loads(line)
        if header["format"] == _FORMAT:
            return CommittedChange(position, str(header["token"]), decode_changes(changes))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedJournal(f"{change_path(position)} cannot be read: {error!r}") from None
    raise DamagedJournal(f"{change_path(position)} has a format that this version does not know: {line[:100]!r}")


class ZooKeeperJournal:
    """The journal through one connection: how far it was read, the last commits, who follows. Any thread may call."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        """Held while a change is delivered, never while ZooKeeper is asked."""
        newest = max(map(position_of, client.children(CHANGES)), default=0)
        self.stream = ChangeStream(newest or self._first_kept() - 1)
        self.complete_from = self.stream.position + 1
        """The position from which on nothing was missed."""
        self._has_ended = False
        self._sizes: deque[int] = deque(maxlen=KEPT)
        """Bytes of the last entries, the newest last."""

    @property
    def position(self) -> int:
        """The position up to which everything was delivered."""
        return self.stream.position

    def follow(self, after: int, listener: Listener | None, ended: Ended | None) -> None:
        """Deliver as ``ports.Coordination.follow`` says."""
        with self._lock:
            self.stream.follow(_FOLLOWER, after, listener, ended)
            if self._has_ended:
                self.stream.followers.end(_FOLLOWER)

    def end(self) -> None:
        """The session has ended: deliver nothing more."""
        with self._lock:
            self._has_ended = True
            self.stream.followers.end(_FOLLOWER)

    def has(self, token: str) -> bool:
        """True if a commit of that name was read."""
        with self._lock:
            return self.stream.has(token)

    def delivered(self, change: CommittedChange, size: int) -> None:
        """Deliver a commit that was read, or made, unless another thread has done so; one of ours before which there is
        another that was not read waits for its turn in ``catch_up``."""
        with self._lock:
            if change.position == self.stream.position + 1:
                self._sizes.append(size)
                self.stream.deliver(change)

    def catch_up(self, watch: Watch | None = None) -> None:
        """Deliver all that ZooKeeper has; ``watch`` is called when there is more."""
        ahead = 1
        while True:
            if self._take(ahead) == ahead:
                ahead = min(2 * ahead, _AHEAD)
                continue
            position = self.position + 1
            if watch is not None and self._client.exists(change_path(position), watch) is not None:
                continue
            first = self._first_kept()
            if first <= position:
                return
            self._skip_to(first)

    def _take(self, count: int) -> int:
        """Read the next positions side by side, and deliver what is there; how many."""
        begin = self.position + 1
        found = self._client.get_all(change_path(position) for position in range(begin, begin + count))
        for position, (_, node) in enumerate(found, begin):
            if node is None:
                return position - begin
            try:
                self.delivered(decode_entry(position, node[0]), len(node[0]))
            except DamagedJournal:
                self._skip_to(position + 1)
        return count

    def between(self, after: int) -> list[CommittedChange] | None:
        """All commits behind a position that ZooKeeper has; None where some were trimmed or cannot be read."""
        changes: list[CommittedChange] = []
        while (found := self._client.get(change_path(after + 1))) is not None:
            after += 1
            try:
                changes.append(decode_entry(after, found[0]))
            except DamagedJournal:
                return None
        return changes if self._first_kept() <= after + 1 else None

    def trim(self, newest: int) -> None:
        """Remove old entries, now and then: those beyond a number, or beyond a number of bytes. Others do so too."""
        if newest % TRIM_EVERY and sum(self._sizes) <= KEPT_BYTES:
            return
        kept, size = 1, 0
        for length in reversed(self._sizes):
            size += length
            if size > KEPT_BYTES // 2:
                break
            kept += 1
        else:
            kept = KEPT
        first = max(newest + 1 - kept, 1)
        old = sorted(position for name in self._client.children(CHANGES) if (position := position_of(name)) < first)
        for at in range(0, len(old), _DELETES):
            part = old[at : at + _DELETES]
            deletes = [Delete(change_path(position), ANY_VERSION) for position in part]
            try:
                self._client.transact([Set(CHANGES, str(part[-1] + 1).encode(), ANY_VERSION), *deletes])
            except (Refused, OutcomeUnknown):
                return  # another one trims, or the next one will
        while len(self._sizes) > kept:
            self._sizes.popleft()

    def _first_kept(self) -> int:
        found = self._client.get(CHANGES)
        return int(found[0]) if found is not None and found[0] else 1

    def _skip_to(self, first: int) -> None:
        """Go on at the first entry that is kept: whoever follows sees the gap."""
        with self._lock:
            if first > self.stream.position + 1:
                self.stream.position = first - 1
                self.complete_from = first
