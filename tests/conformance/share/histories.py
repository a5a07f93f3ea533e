"""Random histories of a share partition, ours and Apache Kafka's back to back: answers, writes and states are equal.

``python -m tests.conformance.share.histories --seeds 1000 [--first 0]`` needs what ``make peers`` fetches. A history
that differs is printed with its seed, its last operations and both outcomes; ``--seeds 1 --first SEED`` repeats it.

Members fetch in both modes and acknowledge rightly and wrongly, locks expire, writes end in any order and fail, dead
letters are copied or lost, retention and compaction take records, transactions abort, settings change, and new leaders
begin with what was written.

Differences by intention, which the judge evens out:

- The start offset advances whenever the first records are done. Apache Kafka advances it at the end of a durable write
  only, so that a window full of aborted or compacted records stays full.
- It also passes offsets that have no records. Apache Kafka's start never leaves such a gap that it has loaded.
- It never falls, nor does the start of the gap range; both pass what the log has lost.
- The batch in flight before an aborted one that was not acquired is not split.

Left out, for faults of Apache Kafka 4.4; a history avoids them or ends there:

- It throws when the window is full and the fetched records are behind it, when an aborted batch begins before the first
  one in flight, when the start offset is past a split batch, and for an acknowledgement across a start in a gap.
- It splits a batch whose release is being written without the transition, which then never ends.
- It acquires records below the start if a batch is in flight that ends before them.
- Records below the start whose lock expired during a write that fails become available again; records at their delivery
  limit are archived then, but not counted.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import MemberId, Offset
from oncelog.core.share.errors import InvalidShareState, client_error
from oncelog.core.share.in_flight import InFlightBatch
from oncelog.core.share.model import (
    TERMINAL,
    Acknowledgement,
    DeadLetters,
    RecordState,
    Refusal,
    ShareSettings,
    ShareState,
    StateBatch,
)
from oncelog.core.share.partition import SharePartition
from oncelog.core.share.transitions import StateWrite
from tests.conformance.judge import Judge, judge_of_share_partitions
from tests.conformance.share.comparison import Different, by_offset, compare_state, compare_write
from tests.conformance.share.log import ShareLog, as_json

STEPS = 200
MEMBERS = [MemberId(f"m{index}") for index in range(4)]
WRITE_ERRORS = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_STATE_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.NETWORK_EXCEPTION,
]


class LeftOut(Exception):
    """The history has met a fault of Apache Kafka that is left out."""


@dataclass(slots=True)
class PendingWrite:
    ours: StateWrite
    theirs: list[dict[str, Any]]
    token: int | None = None
    """Of the request that waits for it."""


class History:
    """One history, drawn by a seed."""

    def __init__(self, judge: Judge, seed: int, events: Counter[str]) -> None:
        self._judge = judge
        self._entropy = entropy = random.Random(seed)
        self.events = events
        self.trace: deque[str] = deque(maxlen=12)
        self._now_ms = 1_000_000
        self._token = 0
        self._committed = entropy.random() < 0.4
        self._log = ShareLog(entropy, entropy.choice([0, 0, 7]))
        self._written: dict[int, tuple[int, int]] = {}
        self._written_start = self._log.start
        self._epoch = entropy.randint(0, 3)
        self._settings = self._any_settings()
        self._load([])

    def _any_settings(self) -> ShareSettings:
        entropy = self._entropy
        return ShareSettings(
            entropy.choice([100, 1000]),
            entropy.choice([2, 3, 5, 5, 10]),
            entropy.choice([10, 40, 100]),
            entropy.random() < 0.8,
            entropy.random() < 0.4,
        )

    def run(self) -> None:
        """Raises Different."""
        steps = [
            (self._grow, 14),
            (self._fetch, 45),
            (self._acknowledge, 40),
            (self._acknowledge_anything, 5),
            (self._release, 4),
            (self._sleep, 14),
            (self._move_log_start, 3),
            (self._compact, 3),
            (self._change_settings, 3),
            (self._end_write, 35),
            (self._end_copy, 12),
            (self._change_leader, 2),
        ]
        names, weights = [step for step, _ in steps], [weight for _, weight in steps]
        try:
            for _ in range(STEPS):
                self._entropy.choices(names, weights)[0]()
                self.ours.check()
        except LeftOut as reason:
            self.events[f"left out: {reason}"] += 1

    # Both partitions

    def _ask(self, **operation: Any) -> dict[str, Any]:
        self.trace.append(str(operation))
        answer = self._judge(**operation)
        if "fault" in answer:
            raise LeftOut(answer["fault"].split(":")[0])
        if not answer["could_move"] or not answer.get("can_move", True):
            raise LeftOut("the start is past a split batch")
        return answer

    def _load(self, batches: list[StateBatch]) -> None:
        self._pending: list[PendingWrite] = []
        self._copies: list[tuple[DeadLetters, list[list[int]]]] = []
        state = ShareState(self._epoch, Offset(self._written_start), -1, batches)
        theirs = self._ask(
            op="new",
            start=state.start_offset,
            epoch=self._epoch,
            batches=[list(batch) for batch in batches],
            settings=list(self._settings),
        )
        try:
            self.ours = SharePartition(state, self._settings)
        except InvalidShareState:
            if not theirs.get("refused"):
                raise Different(f"loading {state}\nours:   refused\ntheirs: {theirs}") from None
            raise LeftOut("a refused state") from None
        self._now_ms = 1_000_000
        self._copy(self.ours.pending_dead_letters, theirs["letters"])
        compare_state(self.ours, theirs)

    def _copy(self, ours: Any, theirs: list[list[int]]) -> None:
        mine = by_offset((first, last, count, int(cause)) for first, last, count, cause in ours)
        if mine != by_offset(letter[1:] for letter in theirs):
            raise Different(f"dead letters\nours:   {ours}\ntheirs: {theirs}")
        for letters in ours:
            same = [letter for letter in theirs if letters.first_offset <= letter[1] <= letters.last_offset]
            self._copies.append((letters, same))
            self.events["dead letters"] += 1

    def _request(self, outcome: StateWrite | Refusal | None, theirs: dict[str, Any], token: int) -> None:
        """Compare the outcome of a request, which may wait for a write."""
        if isinstance(outcome, StateWrite):
            compare_write(outcome.state, theirs["writes"])
            self._pending.append(PendingWrite(outcome, theirs["writes"], token))
            expected: list[Any] = []
        else:
            compare_write(None, theirs["writes"])
            refusal = (ErrorCode.NONE, None) if outcome is None else outcome
            expected = [[token, refusal[0].name, refusal[1]]]
        if theirs["answers"] != expected:
            raise Different(f"answers\nours:   {expected}\ntheirs: {theirs['answers']}")
        compare_state(self.ours, theirs)

    # Steps

    def _grow(self) -> None:
        self._log.grow(self._committed)

    def _fetch(self) -> None:
        entropy = self._entropy
        offset = self.ours.next_fetch_offset()
        if not self.ours.may_acquire() and entropy.random() < 0.9:
            return
        if offset < self._log.start:
            self._set_log_start(self._log.start)
            return
        batches = self._log.read(offset, entropy.randint(1, 6), committed=self._committed)
        if not batches or self._splits_transition(offset, batches[0].base_offset - 1):
            return
        if self._begins_below_start(batches[0].base_offset):
            self.events["avoided: acquisition below the start"] += 1
            return
        aborted = self._log.aborted_in(batches) if self._committed else []
        arguments: dict[str, Any] = {
            "record_limit": entropy.random() < 0.4,
            "batch_size": entropy.choice([1, 5, 10, 1000]),
            "max_records": entropy.choice([1, 3, 10, 30]),
        }
        member = entropy.choice(MEMBERS)
        acquired = self.ours.acquire(
            member,
            batches,  # type: ignore[arg-type]
            aborted,
            fetch_offset=offset,
            now_ms=self._now_ms,
            **arguments,
        )
        theirs = self._ask(
            op="acquire",
            member=member,
            log=as_json(batches),
            committed=self._committed,
            aborted=aborted,
            offset=offset,
            limit=arguments["record_limit"],
            batch_size=arguments["batch_size"],
            max=arguments["max_records"],
            **self._evened(),
        )
        if [list(batch) for batch in acquired] != theirs["acquired"]:
            raise Different(f"acquired\nours:   {acquired}\ntheirs: {theirs['acquired']}")
        self.events["acquired" if acquired else "nothing acquired"] += 1
        if any(batch.delivery_count == self._settings.max_deliveries for batch in acquired):
            self.events["last deliveries"] += 1
        if aborted:
            self._split_needlessly(theirs)
        compare_state(self.ours, theirs)

    def _begins_below_start(self, base_offset: int) -> bool:
        """True if batches in flight leave a gap between the first fetched offset and the start."""
        window, start = self.ours._window, self.ours.start_offset
        covered = sum(
            min(batch.last_offset, start - 1) - max(batch.first_offset, base_offset) + 1
            for batch in window.overlapping(base_offset, start - 1)
        )
        return covered < start - base_offset and window.floor(start - 1) is not None

    def _split_needlessly(self, theirs: dict[str, Any]) -> None:
        """Split the batch before an aborted one, as Apache Kafka does."""
        for batch, (*_, is_split, _) in zip(self.ours._window.batches, theirs["batches"], strict=False):
            batch.is_split |= is_split

    def _evened(self, is_evened: bool = True) -> dict[str, Any]:
        gaps = self.ours._window.active_gaps
        return {"even": is_evened, "gap": -1 if gaps is None else gaps.start_offset}

    def _acknowledge(self) -> None:
        """Acknowledge what a member holds, mostly."""
        entropy = self._entropy
        held = [run for run in self.ours.in_flight() if run.delivery_state is RecordState.ACQUIRED and run.member_id]
        if not held:
            return
        member = entropy.choice(held).member_id
        mine = [run for run in held if run.member_id == member]
        begin = entropy.randrange(len(mine))
        acknowledgements = []
        for run in mine[begin : begin + entropy.randint(1, 3)]:
            first, last = run.first_offset, run.last_offset
            if entropy.random() < 0.3:
                first = entropy.randint(first, last)
                last = entropy.randint(first, last)
            acknowledgements.append(Acknowledgement(Offset(first), Offset(last), self._types(last - first + 1)))
        if entropy.random() < 0.05:
            member = entropy.choice(MEMBERS)
        self._send(member, acknowledgements)

    def _types(self, count: int) -> list[int]:
        entropy = self._entropy
        kinds, weights = [0, 1, 2, 3, 4], [2, 10, 8, 3, 2]
        if count == 1 or entropy.random() < 0.6:
            return entropy.choices(kinds, weights)
        kind = entropy.choices(kinds, weights)[0]
        return [kind if entropy.random() < 0.7 else entropy.choices(kinds, weights)[0] for _ in range(count)]

    def _acknowledge_anything(self) -> None:
        entropy = self._entropy
        first = entropy.randint(max(0, self._log.start - 5), self._log.end + 3)
        count = entropy.choice([1, 2, 5, 20])
        start = self.ours.start_offset
        if first < start < first + count and self.ours._window.floor(start) is None:
            return
        types = [entropy.choice([0, 1, 2, 3, 4, 5, -1])] if entropy.random() < 0.2 else self._types(count)
        self._send(entropy.choice(MEMBERS), [Acknowledgement(Offset(first), Offset(first + count - 1), types)])

    def _send(self, member: MemberId, acknowledgements: list[Acknowledgement]) -> None:
        self._token += 1
        outcome = self.ours.acknowledge(member, acknowledgements, self._now_ms)
        theirs = self._ask(
            op="acknowledge",
            member=member,
            batches=[[first, last, list(types)] for first, last, types in acknowledgements],
            token=self._token,
        )
        self.events[f"acknowledged: {outcome.message if isinstance(outcome, Refusal) else 'accepted'}"[:90]] += 1
        self._request(outcome, theirs, self._token)

    def _release(self) -> None:
        self._token += 1
        member = self._entropy.choice(MEMBERS)
        outcome = self.ours.release(member)
        self._request(outcome, self._ask(op="release", member=member, token=self._token), self._token)

    def _sleep(self) -> None:
        duration_ms = self._entropy.choice([1, 50, 100, 400, 1000])
        self._now_ms += duration_ms
        before = self.ours.lock_timeouts
        outcome = self.ours.expire(self._now_ms)
        theirs = self._ask(op="sleep", ms=duration_ms)
        self.events["locks expired"] += self.ours.lock_timeouts > before
        compare_write(None if outcome is None else outcome.state, theirs["writes"])
        if outcome is not None:
            self._pending.append(PendingWrite(outcome, theirs["writes"]))
        compare_state(self.ours, theirs)

    def _move_log_start(self) -> None:
        offset = self._entropy.randint(self._log.start, min(self._log.end, self._log.start + 60))
        self._log.move_start(offset)
        if self._entropy.random() < 0.7:
            self._set_log_start(offset)

    def _set_log_start(self, offset: int) -> None:
        floor = self.ours._window.floor(offset)
        if self._splits_transition(self.ours.start_offset, offset - 1) or (
            floor is not None and floor.last_offset < offset and self._may_be_split(floor)
        ):
            self.events["avoided: the log's start moves"] += 1
            return
        self.events["log start moved"] += 1
        is_moved = offset > self.ours.start_offset
        self.ours.log_start_moved(Offset(offset))
        compare_state(self.ours, self._ask(op="log_start", offset=offset, **self._evened(is_moved)))

    @staticmethod
    def _may_be_split(batch: InFlightBatch) -> bool:
        return batch.is_split or batch.whole.state is RecordState.ACQUIRED or batch.whole.transition is not None

    def _splits_transition(self, first: int, last: int) -> bool:
        """True if archiving a range would split a batch that is being released."""
        return any(
            not batch.is_split and batch.whole.transition is not None and not batch.is_within(first, last)
            for batch in self.ours._window.overlapping(first, last)
        )

    def _compact(self) -> None:
        self._log.compact()

    def _change_settings(self) -> None:
        self._settings = self.ours.settings = self._any_settings()
        compare_state(self.ours, self._ask(op="settings", settings=list(self._settings)))

    def _end_write(self) -> None:
        entropy = self._entropy
        if not self._pending:
            return
        index = 0 if entropy.random() < 0.8 else entropy.randrange(len(self._pending))
        pending = self._pending.pop(index)
        error = entropy.choice(WRITE_ERRORS) if entropy.random() < 0.15 else ErrorCode.NONE
        if error is not ErrorCode.NONE and self._rolls_back_wrongly(pending.ours):
            error = ErrorCode.NONE
        outcome = self.ours.written(pending.ours, error)
        ids = [write["id"] for write in pending.theirs]
        theirs = self._ask(op="written", ids=ids, error=error.name, **self._evened())
        self.events[f"write {'durable' if error is ErrorCode.NONE else 'failed'}"] += 1
        compare_write(None, theirs["writes"])
        self._copy(outcome.dead_letters, theirs["letters"])
        if pending.token is not None:
            refusal = (ErrorCode.NONE, None) if error is ErrorCode.NONE else client_error(error, "because")
            expected = [[pending.token, refusal[0].name, refusal[1]]]
            if theirs["answers"] != expected:
                raise Different(f"answers\nours:   {expected}\ntheirs: {theirs['answers']}")
        if error is ErrorCode.NONE:
            self._persist(pending.ours.state)
        compare_state(self.ours, theirs)

    def _rolls_back_wrongly(self, write: StateWrite) -> bool:
        """True if a lock has expired meanwhile over records that cannot become available."""
        return any(
            run.transition in write.transitions
            and run.lock is not None
            and run.lock.has_expired
            and (
                run.delivery_count >= run.transition.max_deliveries  # type: ignore[union-attr]
                or run.first_offset < self.ours.start_offset
            )
            for batch in self.ours._window.batches
            for run in batch.runs
        )

    def _persist(self, state: ShareState) -> None:
        for offset, (delivery_state, count) in by_offset(state.batches).items():
            # As the share coordinator merges: writes may end in another order than they began.
            kept_state, kept_count = self._written.get(offset, (0, 0))
            if (count, delivery_state) >= (kept_count, kept_state):
                self._written[offset] = delivery_state, count
        self._written_start = max(self._written_start, state.start_offset)

    def _end_copy(self) -> None:
        if not self._copies:
            return
        letters, theirs_letters = self._copies.pop(self._entropy.randrange(len(self._copies)))
        outcome = self.ours.archived(letters)
        theirs = self._ask(op="copied", ids=[letter[0] for letter in theirs_letters], ok=self._entropy.random() < 0.8)
        compare_write(outcome.state, theirs["writes"])
        self._pending.append(PendingWrite(outcome, theirs["writes"]))
        compare_state(self.ours, theirs)

    def _change_leader(self) -> None:
        """A new leader begins with what was written."""
        batches: list[StateBatch] = []
        for offset, (state, count) in sorted(self._written.items()):
            if offset < self._written_start:
                continue
            if batches and batches[-1][1:] == (offset - 1, state, count):
                batches[-1] = batches[-1]._replace(last_offset=Offset(offset))
            else:
                batches.append(StateBatch(Offset(offset), Offset(offset), state, count))
        if self._entropy.random() < 0.05 and batches:
            # Damaged: the start is inside the batches.
            batches[0] = batches[0]._replace(first_offset=Offset(self._written_start - 1))
        self.events["leader changed"] += 1
        if any(batch.delivery_state not in TERMINAL for batch in batches):
            self.events["leader changed, with records in flight"] += 1
        self._load(batches)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    events: Counter[str] = Counter()
    with judge_of_share_partitions() as judge:
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            history = None
            try:
                history = History(judge, seed, events)
                history.run()
            except Exception as difference:
                print(f"seed {seed}: {difference!r}\n{difference}")
                if history is not None:
                    print("\n".join(history.trace))
                if not isinstance(difference, Different):
                    raise
                return 1
    print(f"{arguments.seeds} histories are equal")
    for name, count in sorted(events.items()):
        print(f"  {count:8} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
