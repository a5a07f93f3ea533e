"""The journal of the ZooKeeper tree: one node per commit, created in the commit's own transaction.

``/oncelog_tree`` belongs to the adapter and is not part of the tree that brokers see; docs/internals/cluster-tree.md
has its nodes. A reader waits for the next position with a watch on its node (``exists``), so following an idle tree
costs nothing. Entries that were trimmed before they were read, or cannot be decoded, are a gap.
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
"""Entries removed in one transaction."""
_AHEAD: Final = 32
"""Entries that a reader fetches in parallel to catch up."""
FORMAT: Final = 1
_FOLLOWER: Final = 0
"""A connection has one session, which is its only follower."""


def change_path(position: int) -> str:
    return f"{NEXT_CHANGE}{position - 1:010d}"


def position_of(name: str) -> int:
    """The position of a journal node, by its name or path."""
    return int(name[-10:]) + 1


def encode_entry(token: str, session: str, changes: Iterable[Change]) -> bytes:
    header = json.dumps({"format": FORMAT, "token": token, "session": session}, separators=(",", ":"))
    return header.encode() + b"\n" + encode_changes(changes)


def decode_entry(position: int, data: bytes) -> CommittedChange:
    """Decode the node of a position. Raises DamagedJournal."""
    line, _, changes = data.partition(b"\n")
    try:
        header = json.loads(line)
        if header["format"] == FORMAT:
            return CommittedChange(position, str(header["token"]), decode_changes(changes))
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedJournal(f"{change_path(position)} cannot be read: {error!r}") from None
    raise DamagedJournal(f"{change_path(position)} has a format that this version does not know: {line[:100]!r}")


class ZooKeeperJournal:
    """The journal as read through one connection: its position, recent commits and followers. Thread-safe."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        """Held while a change is delivered, never during a call to ZooKeeper."""
        newest = max(map(position_of, client.children(CHANGES)), default=0)
        self.stream = ChangeStream(newest or self._first_kept() - 1)
        self.complete_from = self.stream.position + 1
        """No entry from this position on was missed."""
        self._has_ended = False
        self._sizes: deque[int] = deque(maxlen=KEPT)
        """Bytes of recent entries, the newest last."""

    @property
    def position(self) -> int:
        """The position up to which everything was delivered."""
        return self.stream.position

    def follow(self, after: int, listener: Listener | None, ended: Ended | None) -> None:
        """Implements ``ports.Coordination.follow``."""
        with self._lock:
            self.stream.follow(_FOLLOWER, after, listener, ended)
            if self._has_ended:
                self.stream.followers.end(_FOLLOWER)

    def end(self) -> None:
        with self._lock:
            self._has_ended = True
            self.stream.followers.end(_FOLLOWER)

    def has(self, token: str) -> bool:
        with self._lock:
            return self.stream.has(token)

    def delivered(self, change: CommittedChange, size: int) -> None:
        """Deliver a commit, unless another thread has delivered it. An own commit behind unread ones waits for
        ``catch_up``.
        """
        with self._lock:
            if change.position == self.stream.position + 1:
                self._sizes.append(size)
                self.stream.deliver(change)

    def catch_up(self, watch: Watch | None = None) -> None:
        """Deliver everything that ZooKeeper has; ``watch`` is called when there is more."""
        ahead = 1
        while True:
            if self._read_ahead(ahead) == ahead:
                ahead = min(2 * ahead, _AHEAD)
                continue
            position = self.position + 1
            if watch is not None and self._client.exists(change_path(position), watch) is not None:
                continue
            # The next entry does not exist: it is not written yet, or was trimmed.
            first = self._first_kept()
            if first <= position:
                return
            self._skip_to(first)

    def _read_ahead(self, count: int) -> int:
        """Read the next ``count`` positions in parallel and deliver them. Returns how many existed."""
        begin = self.position + 1
        entries = self._client.get_all(change_path(position) for position in range(begin, begin + count))
        for position, (_, node) in enumerate(entries, begin):
            if node is None:
                return position - begin
            try:
                self.delivered(decode_entry(position, node[0]), len(node[0]))
            except DamagedJournal:
                # A damaged entry becomes a gap.
                self._skip_to(position + 1)
        return count

    def between(self, after: int) -> list[CommittedChange] | None:
        """All commits after a position; None if some were trimmed or cannot be decoded."""
        changes: list[CommittedChange] = []
        while (entry := self._client.get(change_path(after + 1))) is not None:
            after += 1
            try:
                changes.append(decode_entry(after, entry[0]))
            except DamagedJournal:
                return None
        return changes if self._first_kept() <= after + 1 else None

    def trim(self, newest: int) -> None:
        """Remove entries beyond a number or beyond a number of bytes, at intervals. All brokers do so."""
        # Rarely, unless large entries fill the journal.
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
                return  # another broker is trimming, or the next commit will
        while len(self._sizes) > kept:
            self._sizes.popleft()

    def _first_kept(self) -> int:
        entry = self._client.get(CHANGES)
        return int(entry[0]) if entry is not None and entry[0] else 1

    def _skip_to(self, first: int) -> None:
        """Continue at the first entry kept; followers see the gap."""
        with self._lock:
            if first > self.stream.position + 1:
                self.stream.position = first - 1
                self.complete_from = first
