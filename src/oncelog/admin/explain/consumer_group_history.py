"""The recent past of a group of the consumer protocol (KIP-848), by its coordinator's log: epochs, targets, members.

Pure: ``EpochHistory.add`` takes the records of keys 3, 5, 6, 8 and 16 in the order of the log. A member has joined when
its current assignment follows epoch 0. Compaction and the window's begin make the history shorter, never wrong.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from oncelog.admin.explain.findings import shortened
from oncelog.admin.transactions.durations import moment_text
from oncelog.base.text import counted
from oncelog.records.internal.consumer_group_records import (
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentMemberKey,
    CurrentMemberValue,
    Key,
    MemberKey,
    MemberValue,
    RegexKey,
    RegexValue,
    TargetEpochKey,
    TargetEpochValue,
    Value,
)

_JOINING_EPOCH = 0

ClientHost = tuple[str, str]
"""The client id and host of a member."""


@dataclass(frozen=True, slots=True)
class EpochChange:
    epoch: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A member that joined or left. Client id and host are empty if its subscription is older than the window."""

    member_id: str
    client_id: str
    host: str
    is_classic: bool
    at_ms: int


@dataclass(frozen=True, slots=True)
class MemberProgress:
    """A member's last current assignment. ``since_ms`` is when the member entered this epoch and state."""

    epoch: int
    state: int
    since_ms: int


@dataclass(slots=True)
class EpochHistory:
    """The records within the window. Dictionaries have the members and expressions of now."""

    epochs: list[EpochChange] = field(default_factory=list)
    targets: list[EpochChange] = field(default_factory=list)
    joined: list[MemberChange] = field(default_factory=list)
    left: list[MemberChange] = field(default_factory=list)
    subscriptions: dict[str, MemberValue] = field(default_factory=dict)
    progress: dict[str, MemberProgress] = field(default_factory=dict)
    expressions: dict[str, RegexValue] = field(default_factory=dict)

    def add(self, key: Key, value: Value | None, at_ms: int) -> None:
        """Add one record; without a value it is a tombstone."""
        match key, value:
            case ConsumerGroupKey(), ConsumerGroupValue(epoch=epoch):
                if not self.epochs or self.epochs[-1].epoch != epoch:
                    self.epochs.append(EpochChange(epoch, at_ms))
            case ConsumerGroupKey(), None:
                self._end(at_ms)
            case TargetEpochKey(), TargetEpochValue(epoch=epoch):
                self.targets.append(EpochChange(epoch, at_ms))
            case MemberKey(member=member), MemberValue():
                self.subscriptions[member] = value
            case MemberKey(member=member), None:
                self.left.append(self._change(member, at_ms))
                self.subscriptions.pop(member, None)
            case CurrentMemberKey(member=member), CurrentMemberValue():
                self._advance(member, value, at_ms)
            case CurrentMemberKey(member=member), None:
                self.progress.pop(member, None)
            case RegexKey(regex=regex), RegexValue():
                self.expressions[regex] = value
            case RegexKey(regex=regex), None:
                self.expressions.pop(regex, None)

    def _advance(self, member: str, value: CurrentMemberValue, at_ms: int) -> None:
        before = self.progress.get(member)
        if value.previous_epoch == _JOINING_EPOCH < value.epoch and (before is None or before.epoch != value.epoch):
            self.joined.append(self._change(member, at_ms))
        if before is None or (before.epoch, before.state) != (value.epoch, value.state):
            self.progress[member] = MemberProgress(value.epoch, value.state, at_ms)

    def _end(self, at_ms: int) -> None:
        """The group is deleted, or becomes a classic one: then the same batch removed members that have not left."""
        self.left = [change for change in self.left if not (change.is_classic and change.at_ms == at_ms)]
        self.subscriptions.clear()
        self.progress.clear()

    def _change(self, member: str, at_ms: int) -> MemberChange:
        subscription = self.subscriptions.get(member)
        if subscription is None:
            return MemberChange(member, "", "", False, at_ms)
        is_classic = subscription.classic is not None
        return MemberChange(member, subscription.client_id, subscription.client_host, is_classic, at_ms)


def clients(changes: list[MemberChange]) -> Counter[ClientHost]:
    """How often each client joined or left; clients without a known name are left out."""
    return Counter((change.client_id, change.host) for change in changes if change.host)


def history_sentences(history: EpochHistory) -> list[str]:
    sentences = []
    if history.epochs:
        first, last = history.epochs[0], history.epochs[-1]
        sentences.append(
            f"Its group epoch rose to {last.epoch:,} at {moment_text(last.at_ms)}."
            if first is last
            else f"Its group epoch rose {counted(len(history.epochs), 'time')}: to {first.epoch:,} at "
            f"{moment_text(first.at_ms)}, at last to {last.epoch:,} at {moment_text(last.at_ms)}."
        )
    if history.targets:
        last = history.targets[-1]
        sentences.append(
            f"{counted(len(history.targets), 'target assignment')} came into effect, the last for epoch "
            f"{last.epoch:,} at {moment_text(last.at_ms)}."
        )
    for changes, verb in ((history.joined, "joined"), (history.left, "left")):
        if changes:
            sentences.append(
                f"{counted(len(changes), 'member')} {verb}: {_names(changes)}; the last at "
                f"{moment_text(changes[-1].at_ms)}."
            )
    return sentences


def _names(changes: list[MemberChange]) -> str:
    counts = Counter(
        f"{change.client_id!r} on {change.host.lstrip('/')}" if change.host else f"member id {change.member_id!r}"
        for change in changes
    )
    return shortened([name if count == 1 else f"{name} ({count} times)" for name, count in counts.most_common()])
