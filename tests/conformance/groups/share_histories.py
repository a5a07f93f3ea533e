"""Random histories of a share group, ours and Apache Kafka 4.4.0's back to back: equal answers, messages and records.

``python -m tests.conformance.groups.share_histories --seeds 1000 [--first 0]`` needs what ``make peers`` fetches. A
history that differs is printed with its seed, its last operation and both outcomes; ``--seeds 1 --first SEED`` repeats
it. Members join, go on with right and wrong epochs, leave and time out; topics appear, grow and go; share coordinators
succeed, fail and stay silent; administrators alter and delete offsets and the group; both coordinators load the log,
half compacted. Both assign every partition to every subscriber: the assignors are compared elsewhere.

Different on purpose, and so not compared: the start offset of a partition whose initialization is repeated.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import GroupId, MemberId, Offset, TopicId, TopicName, TopicPartition
from oncelog.core.groups.model import GroupDecision
from oncelog.core.groups.settings import GroupSettings
from oncelog.core.groups.shard import GroupShard
from oncelog.core.groups.share import heartbeat
from oncelog.core.groups.share.assignor import Assignment, ShareSpec
from oncelog.core.groups.share.decision import PartitionState
from oncelog.core.groups.share.group import ShareGroup
from oncelog.core.groups.share.heartbeat import ShareHeartbeat
from oncelog.core.groups.share.settings import ShareGroupSettings
from oncelog.core.groups.share_groups import OffsetsReply, ShareHeartbeatReply
from oncelog.records.internal import share_group_records
from oncelog.records.internal.share_group_records import ShareKey, ShareMemberKey, ShareStateTopicsValue, ShareValue
from tests.conformance.groups.comparison import Different, EncodedRecord, as_bytes
from tests.conformance.groups.core_group import TopicTable, TopicView
from tests.conformance.groups.log import half_compacted
from tests.conformance.judge import Judge, judge_of_share_groups

STEPS: Final = 60
GROUP: Final = GroupId("g")
_SESSION_NAME: Final = "session-timeout-g-"


class LeftOut(Exception):
    """The history has met a fault of Apache Kafka that is left out."""


def assign_everything(spec: ShareSpec) -> Assignment:
    """The judge's assignor."""
    return {
        member_id: {topic: frozenset(spec.assignable[topic]) for topic in member.topics if spec.assignable[topic]}
        for member_id, member in spec.members.items()
    }


class ShareHistory:
    """One history, drawn by a seed."""

    def __init__(self, judge: Judge, seed: int) -> None:
        self._judge = judge
        self._entropy = entropy = random.Random(seed)
        self._seed = seed
        self.topics: TopicTable = {f"t{index}": self._new_topic() for index in range(entropy.randint(1, 3))}
        self._interval_ms, self._max_size = entropy.choice([0, 1000]), entropy.choice([3, 100])
        self._config = {
            "group.share.assignment.interval.ms": str(self._interval_ms),
            "group.share.max.size": str(self._max_size),
        }
        self._view = TopicView(self.topics)
        self._now_ms = 1000
        self._shard = self._new_shard()
        self._epochs: dict[str, int] = {}
        self._pending: list[list[PartitionState]] = []
        """Initializations without an outcome."""
        self._log: list[list[EncodedRecord]] = []
        judge(op="new", topics=self.topics, config=self._config)

    def run(self, events: Counter[str] | None = None) -> None:
        """Run the history, and count its events. Raises Different."""
        self.events: Counter[str] = Counter() if events is None else events
        steps: list[tuple[Callable[[], None], int]] = [
            (self._join, 15),
            (self._beat, 50),
            (self._leave_all, 3),
            (self._answer, 25),
            (self._sleep, 12),
            (self._change_topics, 6),
            (self._alter, 5),
            (self._delete_offsets, 5),
            (self._delete_group, 2),
            (self._load, 3),
            (self._describe, 5),
        ]
        choices, weights = zip(*steps, strict=True)
        try:
            for _ in range(STEPS):
                step: Callable[[], None] = self._entropy.choices(choices, weights)[0]
                step()
        except LeftOut as reason:
            self.events[f"left out: {reason}"] += 1

    def _new_topic(self) -> tuple[str, int]:
        return self._entropy.randbytes(16).hex(), self._entropy.randint(1, 4)

    def _new_shard(self) -> GroupShard:
        settings = ShareGroupSettings(assignment_interval_ms=self._interval_ms, max_size=self._max_size)
        shard = GroupShard(0, GroupSettings(), topics=self._view, share_settings_of=lambda _group_id: settings)
        shard.loaded(self._now_ms)
        return shard

    @property
    def _group(self) -> ShareGroup | None:
        group = self._shard._groups.get(GROUP)
        assert group is None or isinstance(group, ShareGroup)
        return group

    def _ask(self, **operation: Any) -> dict[str, Any]:
        answer = self._judge(**operation)
        if "fault" in answer:
            raise LeftOut(f"{operation['op']}: {answer['fault'][:90]}")
        if answer.get("records"):
            self._log.append(as_bytes(answer["records"]))
        return answer

    def _settle(self, operation: Mapping[str, Any], ours: GroupDecision, theirs: Mapping[str, Any]) -> None:
        """Apply our decision. Raises Different unless its records are theirs."""
        mine = [_decoded(record) for record in ours.records]
        other = [_decoded(record) for record in as_bytes(theirs.get("records", []))]
        if _comparable(mine) != _comparable(other):
            lines = [f"ours:   {record}" for record in mine] + [f"theirs: {record}" for record in other]
            raise Different("\n".join([str(operation), *lines]))
        for key, value in ours.records:
            self._shard.apply(key, value)
        if ours.follow_up is not None:
            ours.follow_up(self._now_ms)
        self._shard.check()

    def _refused(self, operation: Mapping[str, Any], code: ErrorCode, message: str | None, theirs: Any) -> bool:
        """True if both refuse. Raises Different if one does, or both for different reasons."""
        told = None if code is ErrorCode.NONE else code.name
        if told != theirs.get("error") or (told is not None and message != theirs.get("message")):
            raise Different(f"{operation}\nours: {told} {message}\ntheirs: {theirs}")
        if told is not None:
            self.events[f"{operation['op']} {told}"] += 1
        return told is not None

    def _compare_states(
        self, operation: Mapping[str, Any], states: Sequence[PartitionState], theirs: Any, *, repeated: bool = False
    ) -> None:
        mine = sorted([state.topic.hex(), *state[1:]][: len(theirs[0]) if theirs else 4] for state in states)
        other = sorted(theirs)
        if repeated:
            mine, other = ([state[:3] for state in listed] for listed in (mine, other))
        if mine != other:
            raise Different(f"{operation}\nour states:   {mine}\ntheir states: {other}")

    def _join(self) -> None:
        names = self._entropy.sample(sorted(self.topics), self._entropy.randint(1, len(self.topics)))
        self._send(
            f"m{self._entropy.randint(0, 4)}", 0, [*names, *(["missing"] if self._entropy.random() < 0.1 else [])]
        )

    def _beat(self) -> None:
        if not self._epochs:
            self._join()
            return
        member = self._entropy.choice(
            [*sorted(self._epochs), "unknown"] if self._entropy.random() < 0.05 else sorted(self._epochs)
        )
        epoch = self._epochs.get(member, 1)
        drawn = self._entropy.random()
        if drawn < 0.08:
            epoch += self._entropy.choice([-1, -2, 1])
        elif drawn < 0.13:
            epoch = -1
        names = None
        if epoch > 0 and self._entropy.random() < 0.15:
            names = self._entropy.sample(sorted(self.topics), self._entropy.randint(0, len(self.topics)))
        self._send(member, epoch, names)

    def _send(self, member: str, epoch: int, names: Sequence[str] | None) -> None:
        if epoch < -1:
            return
        operation = {"op": "heartbeat", "member": member, "epoch": epoch, "topics": names}
        if self._entropy.random() < 0.1:
            operation["rack"] = self._entropy.choice(["r0", "r1"])
        before = self._group
        counts = {} if self._group is None else dict(self._group.first_counts)
        initializing = set() if before is None or before.state_topics is None else set(before.state_topics.initializing)
        theirs = self._ask(**operation)
        request = ShareHeartbeat(
            GROUP,
            MemberId(member),
            epoch,
            operation.get("rack"),
            None if names is None else frozenset(map(TopicName, names)),
            "client",
            "localhost/127.0.0.1",
        )
        decision = self._shard.share.heartbeat(request, self._now_ms)
        reply = decision.reply
        assert isinstance(reply, ShareHeartbeatReply)
        if self._refused(operation, reply.error_code, reply.message, theirs):
            if reply.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                self._epochs.pop(member, None)
            return
        answer = reply.answer
        assert answer is not None
        assignment = None
        if answer.assignment is not None:
            assignment = {topic.hex(): sorted(numbers) for topic, numbers in sorted(answer.assignment.items())}
        told = {"member": answer.member_id, "epoch": answer.epoch, "assignment": assignment}
        if told != {name: theirs.get(name) for name in told}:
            raise Different(f"{operation}\nours: {told}\ntheirs: {theirs}")
        repeated = any(
            # What failed begins again where it was to begin; Apache Kafka's begins at 0.
            state.topic in initializing or state.partition < counts.get(state.topic, 0)
            for state in reply.to_initialize
        )
        self._compare_states(operation, reply.to_initialize, theirs.get("states", []), repeated=repeated)
        self._settle(operation, decision, theirs)
        if reply.to_initialize:
            self.events["initialize again" if repeated else "initialize"] += 1
            self._pending.append(list(reply.to_initialize))
        if epoch < 0:
            self._epochs.pop(member, None)
        elif self._entropy.random() < 0.95:
            self._epochs[member] = answer.epoch

    def _leave_all(self) -> None:
        group = self._group
        for member_id in [] if group is None else list(group.members):
            self._send(member_id, -1, None)
        changes = [self._alter, self._delete_offsets, self._delete_group, self._answer, self._change_topics]
        for change in self._entropy.choices(changes, [5, 5, 2, 5, 1], k=self._entropy.randint(0, 6)):
            change()

    def _answer(self) -> None:
        """An outcome of an initialization arrives, perhaps after later ones."""
        if not self._pending:
            return
        states = self._pending.pop(self._entropy.randrange(len(self._pending)))
        drawn = self._entropy.random()
        if drawn < 0.1:
            return
        partitions: dict[TopicId, frozenset[int]] = {}
        for state in states:
            partitions[state.topic] = partitions.get(state.topic, frozenset()) | {state.partition}
        named = {topic.hex(): sorted(numbers) for topic, numbers in partitions.items()}
        operation = {"op": "uninitialized" if drawn < 0.25 else "initialized", "partitions": named}
        if self._group is None:
            return
        if drawn >= 0.25 and any(self._view.name_of(topic) is None for topic in partitions):
            # Apache Kafka keeps it as <UNKNOWN>, we drop it.
            raise LeftOut("a late outcome of a topic that is gone")
        theirs = self._ask(**operation)
        if drawn < 0.25:
            decision = self._shard.share.initialized(GROUP, {}, partitions)
        else:
            decision = self._shard.share.initialized(GROUP, partitions, {})
        if not decision.records and theirs["records"]:
            # They write down what is known already.
            state = _decoded(as_bytes(theirs["records"])[0])[1]
            group = self._group
            assert isinstance(state, ShareStateTopicsValue)
            assert group is not None
            held = group.state_topics
            if held is None or set(state.initializing) | set(state.initialized) != set(held.known()):
                raise Different(f"{operation}\nours: nothing\ntheirs: {state}")
            for key, value in as_bytes(theirs["records"]):
                self._shard.apply(key, value)
            group.initializing_since_ms = dict.fromkeys(state.initializing, self._now_ms)
            return
        self._settle(operation, decision, theirs)
        self.events[operation["op"]] += 1

    def _sleep(self) -> None:
        duration_ms = self._entropy.choices([1, 500, 1000, 5000, 31_000, 46_000], [5, 5, 5, 5, 2, 1])[0]
        end_ms = self._now_ms + duration_ms
        for timer in self._ask(op="sleep", ms=duration_ms)["timers"]:
            self._log.append(as_bytes(timer["records"]))
            self._now_ms = timer["at"]
            self._settle({"expired": timer["key"]}, self._expired(timer["key"]), timer)
            self.events["session expired"] += 1
            self._epochs.pop(timer["key"].removeprefix(_SESSION_NAME), None)
        self._now_ms = end_ms
        due_ms = self._shard.deadline_ms()
        while due_ms is not None and due_ms <= end_ms:
            late = self._shard.tick(end_ms)
            if late.records:
                raise Different(f"theirs had no timer due at {end_ms}; ours: {late}")
            due_ms = self._shard.deadline_ms()

    def _expired(self, key: str) -> GroupDecision:
        """Our decision when the timer expires: theirs come in the order of their names where they are due at once."""
        while (due_ms := self._shard.deadline_ms()) is not None and due_ms <= self._now_ms:
            decision = self._shard.tick(self._now_ms)
            if decision.records:
                keys = [_decoded(record)[0] for record in decision.records]
                names = {key.member for key in keys if isinstance(key, ShareMemberKey)}
                if names != {key.removeprefix(_SESSION_NAME)}:
                    raise LeftOut("sessions that end at the same time")
                return decision
        return GroupDecision()

    def _dropped(self, gone: list[TopicPartition]) -> GroupDecision:
        self._shard.partitions_deleted(gone, self._now_ms)
        while (due_ms := self._shard.deadline_ms()) is not None and due_ms <= self._now_ms:
            if (decision := self._shard.tick(self._now_ms)).records:
                return decision
        return GroupDecision()

    def _change_topics(self) -> None:
        name = self._entropy.choice([*self.topics, f"new{len(self.topics)}"])
        drawn, deleted = self._entropy.random(), False
        topics = dict(self.topics)
        if name not in topics:
            topics[name] = self._new_topic()
        elif drawn < 0.25 and len(topics) > 1:
            deleted = True
            del topics[name]
        elif drawn < 0.4:
            deleted = True
            topics[name] = self._new_topic()
        else:
            topics[name] = topics[name][0], topics[name][1] + 1
        gone = [TopicPartition(TopicName(name), number) for number in range(9)] if deleted else []
        self.topics = topics
        self._view.replace(topics)
        theirs = self._ask(op="topics", topics=topics)
        ours = self._dropped(gone) if gone else GroupDecision()
        if b"<UNKNOWN>" in b"".join(value or b"" for _, value in as_bytes(theirs["records"])):
            # Ours are dropped with the next topic that is deleted.
            raise LeftOut("topics that were gone before their state was to be deleted")
        self._settle({"op": "topics", "topics": topics}, ours, theirs)

    def _alter(self) -> None:
        offsets = {}
        for name in self._entropy.sample(sorted(self.topics), self._entropy.randint(1, len(self.topics))):
            count = self.topics[name][1]
            numbers = self._entropy.sample(range(count), self._entropy.randint(1, count))
            offsets[name] = {str(number): self._entropy.randint(0, 9) for number in numbers}
        operation = {"op": "alter", "offsets": offsets}
        theirs = self._ask(**operation)
        starts = {
            TopicName(name): {int(number): Offset(start) for number, start in starts.items()}
            for name, starts in offsets.items()
        }
        decision = self._shard.share.alter_offsets(GROUP, starts)
        reply = decision.reply
        assert isinstance(reply, OffsetsReply)
        if self._refused(operation, reply.error_code, reply.message, theirs):
            return
        self._compare_states(operation, reply.states, theirs["states"])
        self._settle(operation, decision, theirs)
        self._pending.append(list(reply.states))
        self.events["alter"] += 1

    def _delete_offsets(self) -> None:
        names = self._entropy.sample([*sorted(self.topics), "missing"], self._entropy.randint(1, len(self.topics)))
        operation = {"op": "delete_offsets", "topics": names}
        theirs = self._ask(**operation)
        decision = self._shard.share.delete_offsets(GROUP, map(TopicName, names), self._now_ms)
        reply = decision.reply
        assert isinstance(reply, OffsetsReply)
        if self._refused(operation, reply.error_code, reply.message, theirs):
            return
        self._compare_states(operation, reply.states, theirs["states"])
        told = {result.name: f"{result.error_code.name} {result.message}" for result in reply.topics}
        if told != theirs["errors"]:
            raise Different(f"{operation}\nours: {told}\ntheirs: {theirs['errors']}")
        self._settle(operation, decision, theirs)
        topics = sorted({state.topic for state in reply.states})
        self._shard.share.deletion_ended(GROUP, topics)
        if topics and self._entropy.random() < 0.7:
            operation = {"op": "offsets_deleted", "topics": [topic.hex() for topic in topics]}
            self._settle(operation, self._shard.share.deleted(GROUP, topics), self._ask(**operation))
            self.events["offsets deleted"] += 1

    def _delete_group(self) -> None:
        if self._group is None:
            return
        operation = {"op": "begin_deletion"}
        theirs = self._ask(**operation)
        decision = self._shard.share.begin_group_deletion(GROUP, self._now_ms)
        reply = decision.reply
        assert isinstance(reply, OffsetsReply)
        if self._refused(operation, reply.error_code, reply.message, theirs):
            return
        self._compare_states(operation, reply.states, theirs["states"])
        self._settle(operation, decision, theirs)
        self._shard.share.deletion_ended(GROUP, {state.topic for state in reply.states})
        if self._entropy.random() < 0.7:
            operation = {"op": "delete_group"}
            self._settle(operation, self._shard.delete_group(GROUP, 0, self._now_ms), self._ask(**operation))
            assert self._group is None
            self.events["group deleted"] += 1

    def _load(self) -> None:
        """Both coordinators load the log, as a cleaner may leave it at any time."""
        records = half_compacted(self._log, self._entropy)
        before = _state_of(self._group)
        log = [[key.hex(), None if value is None else value.hex()] for key, value in records]
        shard = self._new_shard()
        shard.is_loaded = False
        for key, value in records:
            shard.apply(key, value)
        shard.loaded(self._now_ms)
        self._shard = shard
        if _state_of(self._group) != before:
            raise Different(f"after a load\nours: {_state_of(self._group)}\nbefore: {before}")
        self.events["load"] += 1
        self._ask(op="load", log=log, config=self._config)

    def _describe(self) -> None:
        theirs = self._ask(op="describe")
        ours = self._shard.share.describe(GROUP)
        if isinstance(ours, str):
            told: dict[str, Any] = {"error": "GROUP_ID_NOT_FOUND", "message": ours}
        else:
            told = {"error": "NONE", "state": ours.state, "epoch": ours.epoch, "assignment_epoch": ours.target_epoch}
            told["members"] = {member.member_id: member.epoch for member in ours.members}
        if told != {name: theirs.get(name) for name in told}:
            raise Different(f"describe\nours: {told}\ntheirs: {theirs}")


Record = tuple[ShareKey, ShareValue | None]


def _decoded(record: EncodedRecord) -> Record:
    """A record, which must encode to the bytes that it came as."""
    key_bytes, value_bytes = record
    key = share_group_records.decode_key(int.from_bytes(key_bytes[:2], "big"), key_bytes[2:])
    value = None if value_bytes is None else share_group_records.decode_value(key, value_bytes)
    assert share_group_records.encode_key(key) == key_bytes
    assert value is None or share_group_records.encode_value(value) == value_bytes
    return key, value


def _comparable(records: Sequence[Record]) -> object:
    """Records with their kinds in order; hash maps order those of a kind, and the elements of a value."""
    return [type(key) for key, _ in records], sorted((repr(key), repr(_sorted(value))) for key, value in records)


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return sorted((key, _sorted(element)) for key, element in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [_sorted(element) for element in value]
    if isinstance(value, tuple):
        return sorted(value)
    return value


def _state_of(group: ShareGroup | None) -> object:
    """Everything that a load must restore of a group."""
    if group is None:
        return None
    return (
        (group.epoch, group.metadata_hash, group.target_epoch, group.target_timestamp_ms),
        sorted((member_id, tuple(member)) for member_id, member in group.members.items()),
        sorted((member_id, sorted(share.items())) for member_id, share in group.target.items() if share),
        group.state_topics,
    )


def main() -> int:
    """Run histories; 1 at the first that differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000, help="the number of histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--events", action="store_true", help="print how often each event happened")
    options = parser.parse_args()
    events: Counter[str] = Counter()
    heartbeat.assign = assign_everything  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder, judge_of_share_groups(Path(folder)) as judge:
        for seed in range(options.first, options.first + options.seeds):
            try:
                ShareHistory(judge, seed).run(events)
            except Different as different:
                print(f"seed {seed}: {different}", file=sys.stderr)
                return 1
    if options.events:
        for event, count in sorted(events.items()):
            print(f"{count:8} {event}")
    print(f"{options.seeds} histories, none differs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
