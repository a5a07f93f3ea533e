"""Consumer groups at work, and what they and an independent client are told of their offsets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from oncelog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from oncelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.cluster.group_members import GROUPS_BY_NAME, Kind, MemberClient, Role, Taken, following
from tests.cluster.member_process import Killed, ProcessMember
from tests.peers.clients.sweep.wire import Wire
from tests.waiting import wait_until

TOPIC: Final = "grouped"
PARTITIONS: Final = 4
PAUSE_S: Final = 0.05
_STATIC_SESSION_MS: Final = 60_000
_ANSWER_S: Final = 1.0


class Group:
    """A consumer group: the records that its members have processed, and the offsets acknowledged to them.
    ``is_transactional``: they commit in transactions."""

    def __init__(
        self, name: str, kind: Kind | None = None, partitions: int = PARTITIONS, *, is_transactional: bool = False
    ) -> None:
        self.name = name
        self.is_transactional = is_transactional
        self.kind = kind or GROUPS_BY_NAME[name]
        self.acknowledged: dict[int, int] = {}
        self.processed: list[set[int]] = [set() for _ in range(partitions)]
        self.repeated = 0
        """Records taken again."""
        self.assignments = 0
        """How often a member was told of partitions."""
        self.replaced = 0
        """Members whose client hung."""
        self.broken: list[str] = []
        self.epoch = 0
        """The greatest epoch that a coordinator has described it with, while it is of the new protocol."""
        self._lock = threading.Lock()

    def committed(self, offsets: Mapping[int, int]) -> None:
        """A commit was acknowledged."""
        with self._lock:
            for partition, offset in offsets.items():
                self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))

    def processing(self, taken: Sequence[Taken]) -> None:
        """Records were taken."""
        with self._lock:
            for record in taken:
                self.repeated += record.offset in self.processed[record.partition]
                self.processed[record.partition].add(record.offset)

    def snapshot(self) -> dict[int, int]:
        """The acknowledged offsets of now."""
        with self._lock:
            return dict(self.acknowledged)

    def told(self, who: str, numbers: Mapping[int, int], least: Mapping[int, int]) -> None:
        """Somebody was told of offsets, which may not be less than ``least``."""
        for partition, offset in least.items():
            if numbers.get(partition, -1) < offset:
                self.broken.append(
                    f"{self.name}: {who} was told of {numbers.get(partition)} for partition {partition}, "
                    f"after {offset} was acknowledged"
                )

    def described(self, who: str, epoch: int, least: int) -> None:
        """Somebody was told of the group's epoch, which may not be less than ``least``."""
        if epoch < least:
            self.broken.append(f"{self.name}: {who} was told of epoch {epoch} after {least}")
        with self._lock:
            self.epoch = max(self.epoch, epoch)

    def unprocessed(self, ends: Sequence[int]) -> Iterator[str]:
        """One line for each partition with records that nobody processed."""
        for partition, end in enumerate(ends):
            missing = set(range(end)) - self.processed[partition]
            if missing:
                least = min(missing)
                yield f"{self.name}: {len(missing)} records of partition {partition} never processed, first {least}"


class Member(threading.Thread):
    """One consumer until it is told to stop, or several after each other. ``as_process``: each a process of its own,
    the program that ``client`` names instead of the group's."""

    def __init__(
        self,
        group: Group,
        number: int,
        bootstrap: str,
        session_ms: int,
        *,
        as_process: bool = False,
        client: str | None = None,
    ) -> None:
        super().__init__(name=f"{group.name}-{number}", daemon=True)
        self.group = group
        self._begins: dict[int, dict[int, int]] = {}
        instance = f"{self.name}-instance" if group.kind.is_static else None
        session_ms = _STATIC_SESSION_MS if group.kind.is_static else session_ms
        kind = GROUPS_BY_NAME.get(client or "", group.kind)
        strategy = kind.strategy_of(number)
        self.client = client or group.name
        self._role = Role(bootstrap, TOPIC, group.name, strategy, instance, session_ms, self._assigned)
        if group.is_transactional:
            self._role = replace(self._role, transactional_id=self.name)
        self._again = threading.Event()
        self._stopping = threading.Event()
        self.number = number
        self.steps = 0
        self._as_process = as_process
        self._process: ProcessMember | None = None
        self._after_taking: Callable[[], object] | None = None
        self.taken: Mapping[int, int] = {}
        """The offsets after the records that it has taken last."""

    def replaced(self) -> Member:
        """Another member in the place of this one, whose client hangs."""
        self.stop()
        role = self._role
        return Member(self.group, self.number, role.bootstrap, role.session_ms, as_process=self._as_process)

    def bounce(self) -> None:
        """Close, and come again as another consumer."""
        self._again.set()

    def after_taking(self, action: Callable[[], object]) -> None:
        """Call ``action`` when the member has taken records the next time, before it goes on."""
        self._after_taking = action

    def kill(self) -> None:
        """SIGKILL to its process; another comes after it."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        if self._process is not None:
            self._process.freeze()

    def thaw(self) -> None:
        if self._process is not None:
            self._process.thaw()

    def stop(self) -> None:
        """Stop after the step under way."""
        self._stopping.set()

    def run(self) -> None:
        """See the class."""
        try:
            while not self._stopping.is_set():
                self._again.clear()
                client = self._made()
                try:
                    while not (self._again.is_set() or self._stopping.is_set()):
                        self.group.committed(client.step(self._take))
                        self.steps += 1
                except Killed:
                    pass
                finally:
                    client.close()
        except Exception as failure:  # noqa: BLE001  # whatever it is, the drill has failed by it
            self.group.broken.append(f"{self.name}: {failure!r}")

    def _made(self) -> MemberClient:
        if not self._as_process:
            return self.group.kind.make(self._role)
        self._process = ProcessMember(self.client, self._role)
        return self._process

    def _assigned(self, partitions: Iterable[int]) -> None:
        least = self.group.snapshot()
        gained = list(partitions)
        self._begins.update({partition: {partition: least[partition]} for partition in gained if partition in least})
        self.group.assignments += bool(gained)

    def _take(self, taken: Sequence[Taken]) -> None:
        for record in taken:
            if least := self._begins.pop(record.partition, None):
                self.group.told(self.name, {record.partition: record.offset}, least)
        self.group.processing(taken)
        self.taken = following(taken)
        action, self._after_taking = self._after_taking, None
        if action is not None:
            action()


class Auditor(threading.Thread):
    """Asks one broker for the offsets of all groups, at every time; it answers for those that it coordinates."""

    def __init__(self, address: str, groups: Sequence[Group]) -> None:
        super().__init__(name=f"auditor of {address}", daemon=True)
        self._address = address
        self._groups = groups
        self._stopping = threading.Event()
        self.answers = 0

    def run(self) -> None:
        """See the class."""
        is_stable = False
        while not self._stopping.wait(PAUSE_S):
            # EndTxn is answered before the offsets of its transaction are the group's: a reader has to wait for them.
            is_stable = not is_stable or any(group.is_transactional for group in self._groups)
            self.ask(is_stable=is_stable)
            self.ask_epochs()

    def stop(self) -> None:
        """Stop after the question under way."""
        self._stopping.set()

    def ask(self, *, is_stable: bool) -> set[str]:
        """The groups whose offsets were answered."""
        least = {group.name: group.snapshot() for group in self._groups}
        partitions = list(range(max(len(group.processed) for group in self._groups)))
        requests = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=partitions)]
        groups = [OffsetFetchRequestGroup(group_id=group.name, topics=requests) for group in self._groups]
        answer = None
        with suppress(OSError), Wire(self._address, _ANSWER_S) as wire:
            answer = wire.call(OffsetFetchRequest(groups=groups, require_stable=is_stable), 8)
        answered = set()
        for group, result in zip(self._groups, answer.groups if answer else (), strict=False):
            answers = [] if result.error_code else result.topics[0].partitions
            offsets = {part.partition_index: part.committed_offset for part in answers if not part.error_code}
            known = {partition: offset for partition, offset in least[group.name].items() if partition in offsets}
            group.told(f"{self.name}, require_stable={is_stable},", offsets, known)
            if len(offsets) == len(partitions):
                answered.add(group.name)
        self.answers += len(answered)
        return answered

    def ask_epochs(self) -> None:
        """Have the groups of the new protocol described."""
        least = {group.name: group.epoch for group in self._groups}
        request = ConsumerGroupDescribeRequest(group_ids=list(least))
        answer = None
        with suppress(OSError), Wire(self._address, _ANSWER_S) as wire:
            answer = wire.call(request, 1)
        for group, described in zip(self._groups, answer.groups if answer else (), strict=False):
            if not described.error_code:
                group.described(self.name, described.group_epoch, least[group.name])


def ask_everybody(auditors: Sequence[Auditor], groups: Sequence[Group]) -> None:
    """Both ways, until every group is answered for."""
    for is_stable in (True, False):
        left = {group.name for group in groups}

        def is_answered(left: set[str] = left, is_stable: bool = is_stable) -> bool:
            for auditor in auditors:
                left -= auditor.ask(is_stable=is_stable)
            return not left

        wait_until(is_answered, lambda left=left: f"the offsets of {left}", poll_s=PAUSE_S)
