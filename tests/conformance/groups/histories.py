"""Random histories of a group, ours and Apache Kafka's back to back: answers, messages, replies and records are equal.

``python -m tests.conformance.groups.histories --seeds 1000 [--first 0] [--regex] [--classic]`` needs what
``make peers`` fetches. A history that differs is printed with its seed, its last operation and both outcomes;
``--seeds 1 --first SEED`` repeats it.

With classic members there are static members of both protocols, conversions by every policy, and loads of the log, also
half compacted. Timers expire in all.

Left out, for faults of Apache Kafka 4.3; a history ends where it meets one:

- After a resolution whose target assignment is still due, it computes the next one with the number of members of
  before, and the range assignor then gives every member the topics of the first.
- It fails to upgrade a group in a rebalance whose members have no chosen protocol, or no longer offer it.
- It answers the requests parked in a classic group although it then refuses to upgrade it.
- It never answers the parked SyncGroup of a member that leaves a classic group.
- A conversion leaves its group's timers, which remove members after the next one.
- It refuses to load a log in which it misses a tombstone or a release.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from oncelog.base.ids import MemberId
from oncelog.core.groups.classic.group import ClassicGroup
from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.consumer.decision import HeartbeatAnswer
from oncelog.core.groups.consumer.group import ConsumerGroup
from oncelog.core.groups.consumer.settings import MigrationPolicy
from oncelog.core.groups.modern.group import Refused
from oncelog.records.internal.consumer_group_records import ConsumerGroupKey, MemberKey, TargetEpochKey
from oncelog.records.internal.group_records import GroupMetadataValue
from tests.conformance.groups.classic_clients import ClassicClients
from tests.conformance.groups.comparison import Different, EncodedRecord, as_bytes, compare_records, decoded
from tests.conformance.groups.core_group import CoreGroup, Outcome, TopicTable
from tests.conformance.groups.log import half_compacted, state_of
from tests.conformance.judge import Judge, judge_of_groups

STEPS = 40
STEPS_WITH_CLASSIC = 80
INSTANCES = {"m0": "i0", "m1": "i0", "m2": "i1", "m3": "i1"}
"""Static members by member id; two ids of an instance replace each other."""
FORGETFUL = ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID")
"""Errors after which a client may begin anew."""


class LeftOut(Exception):
    """The history has met a fault of Apache Kafka that is left out."""


@dataclass(slots=True)
class Client:
    """A member of the new protocol as its client knows it."""

    epoch: int = 0
    owned: dict[str, list[int]] = field(default_factory=dict)


class History:
    """One history, drawn by a seed."""

    def __init__(self, judge: Judge, seed: int, *, by_regex: bool = False, with_classic: bool = False) -> None:
        self._judge = judge
        self._entropy = entropy = random.Random(seed)
        self._by_regex = by_regex
        self._with_classic = with_classic
        self._clients: dict[str, Client] = {}
        self._log: list[list[EncodedRecord]] = []
        self.topics: TopicTable = {
            f"t{index}": (bytes([seed % 250 + 1, index + 1] * 8).hex(), entropy.randint(1, 6))
            for index in range(entropy.randint(1, 4))
        }
        interval_ms, max_size = entropy.choice([0, 0, 1000]), entropy.choice([3, 100])
        policy, classic_max_size = MigrationPolicy.BIDIRECTIONAL, 100
        if with_classic:
            policy = entropy.choice([MigrationPolicy.BIDIRECTIONAL] * 5 + list(MigrationPolicy))
            max_size, classic_max_size = entropy.choice([4, 100, 100]), entropy.choice([3, 100, 100])
        self._settings: dict[str, Any] = {
            "interval": interval_ms,
            "max_size": max_size,
            "classic_max_size": classic_max_size,
            "policy": policy.value,
        }
        self.ours = CoreGroup(self.topics, interval_ms, max_size, classic_max_size, policy)
        self._classic = ClassicClients(entropy, self)
        judge(op="new", seed=seed, topics=self.topics, **self._settings)

    def run(self, events: Counter[str] | None = None) -> None:
        """Run the history, and count its events. Raises Different."""
        self.events: Counter[str] = Counter() if events is None else events
        steps: list[Callable[[], None]] = [
            self._sleep,
            self._change_topics,
            self._join,
            self._heartbeat,
            self._check_offsets,
        ]
        weights = [10, 5, 20, 60, 5]
        if self._by_regex:
            steps.append(self._resolve)
            weights.append(20)
        if self._with_classic:
            steps += [self._classic.step, self._load]
            weights = [20, 5, 10, 40, 5, *weights[5:], 80, 5]
        try:
            for _ in range(STEPS_WITH_CLASSIC if self._with_classic else STEPS):
                kind = type(self.ours.group)
                self._entropy.choices(steps, weights)[0]()
                if kind is not type(self.ours.group):
                    self.events[f"{kind.__name__} -> {type(self.ours.group).__name__}"] += 1
        except LeftOut as reason:
            self.events[f"left out: {reason}"] += 1

    def ask(self, **operation: Any) -> dict[str, Any]:
        """The judge's answer to an operation, whose records join the log. Raises LeftOut for a fault."""
        answer = self._judge(**operation)
        if "fault" in answer:
            raise LeftOut(f"{operation['op']}: {answer['fault'][:90]}")
        if answer.get("records"):
            self._log.append(as_bytes(answer["records"]))
        return answer

    def compare(self, operation: dict[str, Any], ours: Outcome, theirs: dict[str, Any]) -> None:
        """Raises Different unless records and released replies are equal."""
        records = [decoded(record) for record in as_bytes(theirs.get("records", []))]
        try:
            compare_records(ours.records, records)
            for _, value in records:
                if isinstance(value, GroupMetadataValue):
                    self.ours.lead(value.leader)
            self._classic.receive(ours.released, theirs["released"])
        except Different as different:
            raise Different(f"{operation}\n{different}") from None
        self._check_left_out(ours)

    def refused(self, operation: dict[str, Any], refused: Refused, theirs: dict[str, Any]) -> None:
        """Raises Different unless the judge refuses with the same code and message."""
        messages = (str(refused), theirs.get("message") or "")
        # Two members with different faults: the judge meets one first in the order of a hash map.
        same = all(message.startswith("Cannot upgrade") for message in messages) or messages[0] == messages[1]
        if not same or refused.code.name != theirs.get("error"):
            raise Different(f"{operation}\nours: {refused.code.name} {refused}\ntheirs: {theirs}") from None
        self.events[refused.code.name] += 1
        if theirs["released"]:
            raise LeftOut("parked requests answered by a refused upgrade")

    def some_topics(self) -> list[str]:
        return self._entropy.sample(sorted(self.topics), self._entropy.randint(1, len(self.topics)))

    def leave_out(self, fault: str) -> NoReturn:
        raise LeftOut(fault)

    def _check_left_out(self, ours: Outcome) -> None:
        kinds = {type(key) for key, _ in ours.records}
        if self._by_regex and {MemberKey, TargetEpochKey} <= kinds and ConsumerGroupKey not in kinds:
            raise LeftOut("an assignment by the number of members of before")

    def _sleep(self) -> None:
        duration_ms = self._entropy.choices([1, 500, 1000, 3000, 5000, 20_000, 46_000], [5, 5, 5, 5, 5, 1, 1])[0]
        end_ms = self.ours.now_ms + duration_ms
        for timer in self.ask(op="sleep", ms=duration_ms)["timers"]:
            self._log.append(as_bytes(timer["records"]))
            self.ours.now_ms = timer["at"]
            ours = self.ours.expire(timer["key"])
            outlives = (timer["key"], timer["at"]) in self.ours.dropped_timers
            if ours is None and outlives and (timer["records"] or isinstance(self.ours.group, ClassicGroup)):
                raise LeftOut("a timer that outlives a conversion")
            ours = ours or Outcome([])
            if ours.records or ours.released:
                self.events["timer " + timer["key"].partition("-g")[0]] += 1
            self.compare({"expired": timer["key"]}, ours, timer)
        self.ours.now_ms = end_ms
        for key in self.ours.due_timers():
            late = self.ours.expire(key)
            if late is not None and (late.records or late.released):
                if any(name == key and deadline_ms > end_ms for name, deadline_ms in self.ours.dropped_timers):
                    # Theirs was not started again: it still has the one of before, which is due later.
                    raise LeftOut("a timer that outlives a conversion")
                raise Different(f"theirs had no timer {key} due at {end_ms}; ours: {late}")

    def _change_topics(self) -> None:
        name = self._entropy.choice([*self.topics, f"new{len(self.topics)}"])
        is_new = name not in self.topics
        topic_id, count = self.topics.get(name, (bytes([len(self.topics) + 100, 7] * 8).hex(), 1))
        self.topics = {**self.topics, name: (topic_id, count + 1)}
        self.ask(op="topics", topics=self.topics, new=is_new)
        self.ours.change_topics(self.topics, has_new=is_new)

    def _resolve(self) -> None:
        theirs = self.ask(op="tasks")
        self.compare({"op": "tasks"}, Outcome([*self.ours.resolve()]), theirs)

    def _load(self) -> None:
        """Both coordinators load the log, as a cleaner may leave it at any time."""
        group = self.ours.group
        before = state_of(group)
        records = half_compacted(self._log, self._entropy)
        if isinstance(group, ClassicGroup):
            # In memory it has more than its record: parked requests, protocols, a rebalance.
            loaded = self.ours.loaded_group(records)
            if group.state is GroupState.STABLE and state_of(loaded) != before:
                raise Different(f"after a load\nours: {state_of(loaded)}\nbefore: {before}")
            return
        self.ours.load(records)
        if state_of(self.ours.group) != before:
            raise Different(f"after a load\nours: {state_of(self.ours.group)}\nbefore: {before}")
        self.events["load"] += 1
        log = [[key.hex(), None if value is None else value.hex()] for key, value in records]
        self.ask(op="load", log=log, **self._settings)

    def _check_offsets(self) -> None:
        """A commit and a fetch by a member's epoch, or another."""
        group, entropy = self.ours.group, self._entropy
        if not isinstance(group, ConsumerGroup):
            return
        member_id = entropy.choice([*group.members, "unknown", ""])
        epoch = entropy.randint(-1, group.epoch + 1)
        known = group.members.get(MemberId(member_id))
        if known is not None and entropy.random() < 0.8:
            epoch = known.epoch + entropy.randint(-2, 1)
        operation: dict[str, Any] = {"member": member_id, "instance": None, "epoch": epoch}
        operation |= {"transactional": entropy.random() < 0.3, "version": entropy.choice([8, 9, 10])}
        theirs = self.ask(op="commit", **operation)
        ours = self.ours.commit_codes(operation)
        if ours != theirs.get("codes", theirs.get("error")):
            raise Different(f"commit {operation}\nours: {ours}\ntheirs: {theirs}")
        # Without a member id any other epoch is a fault of Apache Kafka's.
        name, epoch = (member_id, epoch) if entropy.random() < 0.9 else (None, -1)
        fetched = self.ask(op="fetch", member=name, epoch=epoch)
        code = self.ours.fetch_code(name, epoch)
        if code != fetched.get("error", "NONE"):
            raise Different(f"fetch by {name} in {epoch}\nours: {code}\ntheirs: {fetched}")

    def _join(self) -> None:
        member = f"m{self._entropy.randint(0, 5)}"
        self._send(member, self._joining(member))

    def _heartbeat(self) -> None:
        if not self._clients:
            self._join()
            return
        entropy = self._entropy
        member = entropy.choice(sorted(self._clients))
        client = self._clients[member]
        epoch = client.epoch if entropy.random() < 0.9 else client.epoch + entropy.choice([-1, 1])
        leaves = entropy.random()
        if leaves < 0.1:
            epoch = -1
        elif leaves < 0.2 and member in INSTANCES:
            epoch = -2
        if epoch == 0:
            self._send(member, self._joining(member))
            return
        operation: dict[str, Any] = {"member": member, "epoch": epoch, "instance": INSTANCES.get(member)}
        if epoch > 0:
            if entropy.random() < 0.7:
                operation["owned"] = client.owned if entropy.random() < 0.9 else {}
            if entropy.random() < 0.15:
                operation["topics"] = self.some_topics()
            if entropy.random() < 0.1:
                operation["timeout"] = 5000
            if self._by_regex and entropy.random() < 0.1:
                operation["regex"] = self._some_regex()
        self._send(member, operation)

    def _joining(self, member: str) -> dict[str, Any]:
        operation: dict[str, Any] = {
            "member": member,
            "epoch": 0,
            "timeout": self._entropy.choice([3000, 5000]),
            "topics": self.some_topics(),
            "owned": {},
            "instance": INSTANCES.get(member),
            "assignor": self._entropy.choice([None, None, "range"]),
        }
        if self._by_regex and self._entropy.random() < 0.6:
            operation["regex"] = self._some_regex()
            if operation["regex"] and self._entropy.random() < 0.7:
                operation["topics"] = []
        return operation

    def _some_regex(self) -> str:
        return self._entropy.choice(["t.*", "t[01]", "new.*", "x", ""])

    def _send(self, member: str, operation: dict[str, Any]) -> None:
        group = self.ours.group
        if (
            operation["epoch"] == 0
            and isinstance(group, ClassicGroup)
            and group.members
            and group.protocol_name is None
        ):
            # Nearly every upgrade would end in the fault.
            return
        theirs = self.ask(op="heartbeat", group="g", **operation)
        try:
            ours = self.ours.heartbeat(operation)
        except Refused as refused:
            self.refused(operation, refused, theirs)
            if refused.code.name in FORGETFUL and self._entropy.random() < 0.5:
                self._clients.pop(member, None)
            return
        answer = ours.answer
        assert isinstance(answer, HeartbeatAnswer)
        assignment = None
        if answer.assignment is not None:
            assignment = {topic.hex(): sorted(answer.assignment[topic]) for topic in sorted(answer.assignment)}
        told = {"member": answer.member_id, "epoch": answer.epoch, "assignment": assignment}
        self._check_left_out(ours)
        if told != {name: theirs.get(name) for name in told}:
            raise Different(f"{operation}\nours: {told}\ntheirs: {theirs}")
        self.compare(operation, ours, theirs)
        self._note_answer(member, operation["epoch"], answer.epoch, assignment)

    def _note_answer(self, member: str, sent: int, epoch: int, assignment: dict[str, list[int]] | None) -> None:
        if sent == -1:
            self._clients.pop(member, None)
            return
        client = self._clients.setdefault(member, Client())
        client.epoch = max(epoch, 0)
        if assignment is not None and self._entropy.random() < 0.8:
            client.owned = assignment


def main() -> int:
    """Run histories; 1 at the first that differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000, help="the number of histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--regex", action="store_true", help="subscribe by regular expressions, too")
    parser.add_argument("--classic", action="store_true", help="with classic members, conversions and loads")
    parser.add_argument("--events", action="store_true", help="print how often each event happened")
    options = parser.parse_args()
    events: Counter[str] = Counter()
    with judge_of_groups() as judge:
        for seed in range(options.first, options.first + options.seeds):
            try:
                History(judge, seed, by_regex=options.regex, with_classic=options.classic).run(events)
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
