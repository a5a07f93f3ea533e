"""Random histories of a consumer group, ours and Apache Kafka's back to back: answers, messages and records are equal.

``python -m tests.conformance.groups.histories --seeds 1000 [--first 0]`` needs what ``make peers`` fetches. A history
that differs is printed with its seed, its last operation and both outcomes; ``--seeds 1 --first SEED`` repeats it.

Left out, for a fault of Apache Kafka 4.3: after a resolution whose target assignment is still due, it computes the next
one with the number of members of before, and the range assignor then gives every member the topics of the first.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oncelog.core.groups.consumer.settings import Refused
from oncelog.records.internal.consumer_group_records import (
    ConsumerGroupKey,
    CurrentMemberValue,
    Key,
    MemberKey,
    MemberValue,
    RegexValue,
    TargetEpochKey,
    TargetMemberValue,
    Value,
)
from tests.conformance.groups.core_group import CoreGroup, TopicTable, decoded
from tests.conformance.groups.judge import Judge

STEPS = 40
INSTANCES = {"m0": "i0", "m1": "i0", "m2": "i1", "m3": "i1"}
"""Static members by member id; two ids of an instance replace each other."""
FORGETFUL = ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID")
"""Errors after which a client may begin anew."""


class Different(Exception):
    """The two coordinators disagree."""


class LeftOut(Exception):
    """The history has met the fault of Apache Kafka that is left out."""


@dataclass(slots=True)
class Client:
    """A member as its client knows it."""

    epoch: int = 0
    owned: dict[str, list[int]] = field(default_factory=dict)


class History:
    """One history, drawn by a seed."""

    def __init__(self, judge: Judge, seed: int, *, by_regex: bool) -> None:
        self._judge = judge
        self._entropy = entropy = random.Random(seed)
        self._by_regex = by_regex
        self._clients: dict[str, Client] = {}
        self._topics: TopicTable = {
            f"t{index}": (bytes([seed % 250 + 1, index + 1] * 8).hex(), entropy.randint(1, 6))
            for index in range(entropy.randint(1, 4))
        }
        interval_ms, max_size = entropy.choice([0, 0, 1000]), entropy.choice([3, 100])
        self._ours = CoreGroup(self._topics, interval_ms, max_size)
        judge(op="new", topics=self._topics, interval=interval_ms, max_size=max_size)

    def run(self) -> None:
        """Run the history. Raises Different."""
        steps: list[Callable[[], None]] = [self._sleep, self._change_topics, self._join, self._heartbeat]
        weights = [10, 5, 20, 65]
        if self._by_regex:
            steps.append(self._resolve)
            weights.append(20)
        with contextlib.suppress(LeftOut):
            for _ in range(STEPS):
                self._entropy.choices(steps, weights)[0]()

    def _sleep(self) -> None:
        duration_ms = self._entropy.choice([1, 500, 1000, 5000])
        expired = self._judge(op="sleep", ms=duration_ms)["timers"]
        self._ours.now_ms += duration_ms
        # Timers are the shard's: what they wrote is taken over.
        for timer in expired:
            self._ours.apply(decoded(timer["records"]))

    def _change_topics(self) -> None:
        name = self._entropy.choice([*self._topics, f"new{len(self._topics)}"])
        is_new = name not in self._topics
        topic_id, count = self._topics.get(name, (bytes([len(self._topics) + 100, 7] * 8).hex(), 1))
        self._topics = {**self._topics, name: (topic_id, count + 1)}
        self._judge(op="topics", topics=self._topics, new=is_new)
        self._ours.change_topics(self._topics, has_new=is_new)

    def _resolve(self) -> None:
        theirs = decoded(self._judge(op="tasks")["records"])
        _compare_records(self._ours.resolve(), theirs)

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
        elif leaves < 0.15 and member in INSTANCES:
            epoch = -2
        if epoch == 0:
            self._send(member, self._joining(member))
            return
        operation: dict[str, Any] = {"member": member, "epoch": epoch, "instance": INSTANCES.get(member)}
        if epoch > 0:
            if entropy.random() < 0.7:
                operation["owned"] = client.owned if entropy.random() < 0.9 else {}
            if entropy.random() < 0.15:
                operation["topics"] = self._some_topics()
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
            "topics": self._some_topics(),
            "owned": {},
            "instance": INSTANCES.get(member),
            "assignor": self._entropy.choice([None, None, "range"]),
        }
        if self._by_regex and self._entropy.random() < 0.6:
            operation["regex"] = self._some_regex()
            if operation["regex"] and self._entropy.random() < 0.7:
                operation["topics"] = []
        return operation

    def _some_topics(self) -> list[str]:
        return self._entropy.sample(sorted(self._topics), self._entropy.randint(1, len(self._topics)))

    def _some_regex(self) -> str:
        return self._entropy.choice(["t.*", "t[01]", "new.*", "x", ""])

    def _send(self, member: str, operation: dict[str, Any]) -> None:
        theirs = self._judge(op="heartbeat", group="g", **operation)
        if self._ours.group is None and operation["epoch"] != 0:
            # A shard answers for a group that it does not have.
            assert theirs["error"] == "GROUP_ID_NOT_FOUND", theirs
            return
        try:
            decision = self._ours.heartbeat(operation)
        except Refused as refused:
            if (refused.code.name, str(refused)) != (theirs.get("error"), theirs.get("message")):
                raise Different(f"{operation}\nours: {refused.code.name} {refused}\ntheirs: {theirs}") from None
            if refused.code.name in FORGETFUL and self._entropy.random() < 0.5:
                self._clients.pop(member, None)
            return
        kinds = {type(key) for key, _ in decision.records}
        if self._by_regex and {MemberKey, TargetEpochKey} <= kinds and ConsumerGroupKey not in kinds:
            raise LeftOut
        answer = decision.answer
        assignment = None
        if answer.assignment is not None:
            assignment = {topic.hex(): sorted(partitions) for topic, partitions in answer.assignment.items()}
        ours = {"member": answer.member_id, "epoch": answer.epoch, "assignment": assignment}
        if ours != {name: theirs.get(name) for name in ours}:
            raise Different(f"{operation}\nours: {ours}\ntheirs: {theirs}")
        try:
            _compare_records(decision.records, decoded(theirs["records"]))
        except Different as different:
            raise Different(f"{operation}\n{different}") from None
        self._note_answer(member, operation["epoch"], answer.epoch, assignment)

    def _note_answer(self, member: str, sent: int, epoch: int, assignment: dict[str, list[int]] | None) -> None:
        if sent == -1:
            self._clients.pop(member, None)
            return
        client = self._clients.setdefault(member, Client())
        client.epoch = max(epoch, 0)
        if assignment is not None and self._entropy.random() < 0.8:
            client.owned = assignment


def _compare_records(ours: list[tuple[Key, Value | None]], theirs: list[tuple[Key, Value | None]]) -> None:
    """Raises Different unless the records are equal and of kinds in equal order; hash maps order those of a kind."""
    if [type(key) for key, _ in ours] != [type(key) for key, _ in theirs] or _ordered(ours) != _ordered(theirs):
        lines = [f"ours:   {record}" for record in ours] + [f"theirs: {record}" for record in theirs]
        raise Different("\n".join(lines))


def _ordered(records: list[tuple[Key, Value | None]]) -> list[tuple[Key, object]]:
    comparable = [(key, _comparable(value)) for key, value in records]
    return sorted(comparable, key=lambda record: (type(record[0]).__name__, record[0]))


def _comparable(value: Value | None) -> object:
    match value:
        case TargetMemberValue():
            return {topic: tuple(sorted(partitions)) for topic, partitions in value.partitions.items()}
        case CurrentMemberValue():
            return value._replace(state=int(value.state))
        case MemberValue() | RegexValue():
            return value._replace(topics=tuple(sorted(value.topics)))
        case _:
            return value


def main() -> int:
    """Run histories; 1 at the first that differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1000, help="the number of histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--regex", action="store_true", help="subscribe by regular expressions, too")
    options = parser.parse_args()
    with Judge() as judge:
        for seed in range(options.first, options.first + options.seeds):
            try:
                History(judge, seed, by_regex=options.regex).run()
            except Different as different:
                print(f"seed {seed}: {different}", file=sys.stderr)
                return 1
    print(f"{options.seeds} histories, none differs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
