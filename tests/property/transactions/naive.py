"""A coordinator one can hold in one's head: one dictionary, every step done at once, no log, no waiting.

The wire-faithful coordinator of the specs, completed: retries, Transactions V2, rotation, two-phase commit. It answers
with names of errors. Markers are written within the step, so nothing is ever between Prepare and Complete.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LAST = 32766


@dataclass
class Meta:
    """The known facts about a transactional id."""

    pid: int
    epoch: int
    state: str = "Empty"
    parts: list[int] = field(default_factory=list)
    before: tuple[int, int] | None = None
    """The identity before the last end of Transactions V2."""
    init_before: tuple[int, int] | None = None
    """The identity before the last InitProducerId that named it."""
    rotated: tuple[int, int] | None = None
    """The identity before the last InitProducerId, if that changed the producer id and nothing has happened since."""
    kept: tuple[int, int] | None = None
    """The identity that may end the open transaction instead."""

    @property
    def client(self) -> tuple[int, int]:
        """The identity that may ask for something."""
        return self.kept or (self.pid, self.epoch)


class Naive:
    """Transactions of all ids."""

    def __init__(self, next_pid: int, version: int) -> None:
        self.meta: dict[str, Meta] = {}
        self.next_pid = next_pid
        self.version = version
        self.markers: list[tuple[int, int, bool, tuple[int, ...]]] = []

    def raised(self, who: tuple[int, int]) -> tuple[int, int]:
        """The next identity."""
        if who[1] < LAST:
            return who[0], who[1] + 1
        self.next_pid += 1
        return self.next_pid - 1, 0

    def init(self, tid: str, expected: tuple[int, int] | None, keep: bool) -> tuple[str, tuple[int, int] | None]:
        """InitProducerId."""
        if tid not in self.meta:
            self.next_pid += 1
            self.meta[tid] = Meta(self.next_pid - 1, 0)
            return "NONE", self.meta[tid].client
        m = self.meta[tid]
        if m.state == "Ongoing" and keep:
            return self.keep(m, expected)
        if m.state == "Ongoing":
            if expected not in (None, m.client):
                return "PRODUCER_FENCED", None
            self.fence(m)
            if self.version < 2:
                m.init_before = None
        if expected is None or expected == m.client:
            m.init_before, old = expected, m.client
            m.pid, m.epoch = self.raised(old)
            m.rotated = (old[0], LAST) if m.epoch == 0 else None
        elif expected == m.init_before:
            # Every transition writes the current producer id as the previous one: an exhausted id is known once.
            m.rotated = None
            m.init_before = expected if expected[0] == m.pid else None
        else:
            return "PRODUCER_FENCED", None
        m.state, m.parts, m.before = "Empty", [], None
        return "NONE", m.client

    def keep(self, m: Meta, expected: tuple[int, int] | None) -> tuple[str, tuple[int, int] | None]:
        """InitProducerId with KeepPreparedTxn on an open transaction."""
        if expected is None or expected == m.client:
            m.init_before = expected
            m.kept = self.raised(m.client)
        elif expected != m.init_before or (m.kept and expected[0] not in (m.pid, m.kept[0])):
            return "PRODUCER_FENCED", None
        return "NONE", m.kept

    def fence(self, m: Meta) -> None:
        """Abort against the client's will."""
        if self.version >= 2:
            self.finish(m, commit=False, version=2)
            return
        m.epoch += 1
        m.kept = m.kept and (m.kept[0], m.kept[1] + 1)
        m.init_before = None
        self.finish(m, commit=False, version=0)

    def refusal(self, m: Meta | None, who: tuple[int, int]) -> str | None:
        """The error for an identity that is not the client's, None for the client's."""
        if m is None:
            return "INVALID_PRODUCER_ID_MAPPING"
        if who == m.client:
            return "PRODUCER_FENCED" if who[1] > LAST else None
        known = {m.client[0], m.pid if m.kept else m.client[0]}
        return "PRODUCER_FENCED" if who[0] in known else "INVALID_PRODUCER_ID_MAPPING"

    def add(self, tid: str, who: tuple[int, int], part: int) -> str:
        """AddPartitionsToTxn."""
        m = self.meta.get(tid)
        refusal = self.refusal(m, who)
        if refusal or m is None:
            return str(refusal)
        if m.kept:
            return "INVALID_TXN_STATE"
        m.state = "Ongoing"
        m.before = m.rotated = None
        m.init_before = m.init_before if m.init_before and m.init_before[0] == m.pid else None
        if part not in m.parts:
            m.parts.append(part)
        return "NONE"

    def end(self, tid: str, who: tuple[int, int], commit: bool, version: int) -> tuple[str, tuple[int, int] | None]:
        """EndTxn."""
        m = self.meta.get(tid)
        done = "CompleteCommit" if commit else "CompleteAbort"
        if version >= 2 and m is not None and m.state.startswith("Complete") and self.is_retry(m, who):
            lost = "PRODUCER_FENCED" if commit else "INVALID_TXN_STATE"
            return ("NONE", m.client) if m.state == done else (lost, None)
        refusal = self.refusal(m, who)
        if refusal or m is None:
            fenced = version >= 2 and m is not None and who == m.rotated and m.epoch == 0
            return "PRODUCER_FENCED" if fenced else str(refusal), None
        if m.state != "Ongoing":
            if version < 2:
                return ("NONE", m.client) if m.state == done else ("INVALID_TXN_STATE", None)
            if commit:
                return "INVALID_TXN_STATE", None
        self.finish(m, commit=commit, version=version)
        return "NONE", m.client

    def is_retry(self, m: Meta, who: tuple[int, int]) -> bool:
        """True if the identity is the one before the last end; as Apache Kafka, whatever raised the epoch."""
        return who == m.before or (who == (m.pid, m.epoch - 1) and m.epoch <= LAST)

    def finish(self, m: Meta, *, commit: bool, version: int) -> None:
        """Prepare, markers, Complete."""
        client = m.client
        marker_epoch = m.epoch + 1 if version >= 2 else m.epoch
        if m.parts:
            self.markers.append((m.pid, marker_epoch, commit, tuple(m.parts)))
        if version >= 2:
            m.before = m.init_before = client
        following = self.raised(client) if version >= 2 else client
        m.pid, m.epoch = following
        m.parts, m.kept, m.rotated = [], None, None
        m.state = "CompleteCommit" if commit else "CompleteAbort"
