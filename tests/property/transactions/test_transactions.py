"""The shard against the naive coordinator, and against everything that can go wrong between Prepare and Complete."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oncelog.base.errors import ErrorCode
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.settings import TransactionSettings
from oncelog.core.transactions.states import COMPLETED, PREPARED
from oncelog.core.transactions.states import TransactionState as S
from tests.property.transactions.naive import Naive
from tests.scenario.transactions.driver import Driver, identity

IDS = st.sampled_from(["a", "b"])
VERSIONS = st.sampled_from([0, 2, 2])


class AgainstNaive(RuleBasedStateMachine):
    """Markers are written at once: every answer, every marker and every state is the naive coordinator's."""

    def __init__(self) -> None:
        super().__init__()
        self.identities: list[Identity] = [identity(999, 0)]

    @initialize(version=st.sampled_from([0, 1, 2]))
    def begin(self, version: int) -> None:
        """A cluster at one level of transaction.version."""
        self.driver = Driver(TransactionSettings(two_phase_commit_enable=True, transaction_version=version))
        self.naive = Naive(self.driver.next_producer_id, version)

    def same(self, reply: Any, expected: tuple[str, tuple[int, int] | None]) -> None:
        """The same answer."""
        error, who = expected
        assert reply.error_code.name == error
        if who is not None:
            assert reply.identity == who
            self.identities.append(reply.identity)

    def who(self, data: st.DataObject, tid: str) -> Identity:
        """The id's client, mostly; or somebody from the past, or of the other id."""
        meta = self.naive.meta.get(tid)
        current = [] if meta is None else [identity(*meta.client)] * 4
        if meta is not None and meta.before is not None:
            current.append(identity(*meta.before))
        return data.draw(st.sampled_from([*current, *self.identities[-4:]]))

    @rule(data=st.data(), tid=IDS, keep=st.sampled_from([False, False, True]), expects=st.booleans())
    def init(self, data: st.DataObject, tid: str, keep: bool, expects: bool) -> None:
        """InitProducerId."""
        expected = self.who(data, tid) if expects else None
        self.same(self.driver.init(expected, tid=tid, keep=keep), self.naive.init(tid, expected, keep))

    @rule(data=st.data(), tid=IDS, part=st.integers(0, 2), version=VERSIONS)
    def add(self, data: st.DataObject, tid: str, part: int, version: int) -> None:
        """AddPartitionsToTxn."""
        who = self.who(data, tid)
        assert self.driver.add(who, part, tid=tid, version=version).name == self.naive.add(tid, who, part)

    @rule(data=st.data(), tid=IDS, commit=st.booleans(), version=VERSIONS)
    def end(self, data: st.DataObject, tid: str, commit: bool, version: int) -> None:
        """EndTxn."""
        who = self.who(data, tid)
        reply = self.driver.end(who, commit=commit, tid=tid, version=version)
        self.same(reply, self.naive.end(tid, who, commit, version))

    @rule(tid=IDS)
    def exhaust(self, tid: str) -> None:
        """Thirty thousand transactions later."""
        meta = self.naive.meta.get(tid)
        if meta is not None and meta.state in ("Empty", "Ongoing") and not meta.kept and meta.epoch < 32765:
            self.identities.append(self.driver.at_epoch(32766, tid=tid))
            meta.epoch, meta.init_before = 32766, None
            held = self.driver.held(tid)
            self.driver.shard._transactions.put(held._replace(last_epoch=identity(0, -1)[1]))

    @rule(tid=IDS)
    def time_out(self, tid: str) -> None:
        """Its time is over."""
        meta = self.naive.meta.get(tid)
        if meta is None or [m.state for m in self.naive.meta.values()].count("Ongoing") != 1 or meta.state != "Ongoing":
            return
        self.naive.fence(meta)
        self.driver.advance(100_000)

    @invariant()
    def everything_is_the_same(self) -> None:
        """States, identities, partitions, markers."""
        if not hasattr(self, "driver"):
            return
        for tid, meta in self.naive.meta.items():
            held = self.driver.held(tid)
            assert (self.driver.state(tid), held.client_identity) == (meta.state, meta.client)
            assert [partition for _, partition in held.partitions] == meta.parts
        sent = [(*m.identity, m.committed, tuple(p for _, p in m.partitions)) for m in self.driver.sent]
        assert sorted(sent) == sorted(self.naive.markers)
        assert self.driver.next_producer_id >= self.naive.next_pid
        self.naive.next_pid = self.driver.next_producer_id


class Hostile(RuleBasedStateMachine):
    """Markers late, logs that refuse, crashes, time: whatever happens a decided transaction keeps its outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(TransactionSettings(two_phase_commit_enable=True), writes_markers=False)
        self.identities: list[Identity] = [identity(999, 0)]
        self.unanswered: set[int] = set()

    def note(self, reply: Any) -> None:
        """Learn from an answer, or remember that there is none yet."""
        if reply is None:
            self.unanswered.add(self.driver.last_token)
        elif isinstance(getattr(reply, "identity", None), Identity) and reply.error_code is ErrorCode.NONE:
            assert 0 <= reply.identity.producer_epoch <= 32766
            self.identities.append(reply.identity)

    def who(self, data: st.DataObject, tid: str) -> Identity:
        """Mostly the client of the id."""
        known = [t.client_identity for _, t in self.driver.shard._transactions.items() if t.transactional_id == tid]
        return data.draw(st.sampled_from([*known, *known, *self.identities[-3:]]))

    @rule(data=st.data(), tid=IDS, keep=st.booleans(), expects=st.booleans(), refuse=st.booleans())
    def init(self, data: st.DataObject, tid: str, keep: bool, expects: bool, refuse: bool) -> None:
        """InitProducerId."""
        self.driver.refuse_appends = int(refuse)
        self.note(self.driver.init(self.who(data, tid) if expects else None, tid=tid, keep=keep))
        self.driver.refuse_appends = 0

    @rule(data=st.data(), tid=IDS, part=st.integers(0, 2), version=VERSIONS)
    def add(self, data: st.DataObject, tid: str, part: int, version: int) -> None:
        """AddPartitionsToTxn."""
        self.note(self.driver.add(self.who(data, tid), part, tid=tid, version=version))

    @rule(data=st.data(), tid=IDS, commit=st.booleans(), version=VERSIONS, refuse=st.booleans())
    def end(self, data: st.DataObject, tid: str, commit: bool, version: int, refuse: bool) -> None:
        """EndTxn."""
        self.driver.refuse_appends = int(refuse)
        self.note(self.driver.end(self.who(data, tid), commit=commit, tid=tid, version=version))
        self.driver.refuse_appends = 0

    @rule(data=st.data(), refuse=st.booleans())
    def write_some(self, data: st.DataObject, refuse: bool) -> None:
        """A leader reports, perhaps twice, perhaps about an earlier transaction."""
        if self.driver.sent:
            markers = data.draw(st.sampled_from(self.driver.sent[-4:]))
            some = data.draw(st.lists(st.sampled_from(markers.partitions), min_size=1))
            self.driver.refuse_appends = int(refuse)
            self.driver.carry_out(self.driver.shard.markers_written(markers, some, self.driver.now_ms))
            self.driver.refuse_appends = 0

    @rule(milliseconds=st.sampled_from([1, 100, 4_999, 60_000]))
    def pass_time(self, milliseconds: int) -> None:
        """Deadlines pass."""
        self.driver.advance(milliseconds)

    @rule()
    def restart(self) -> None:
        """Another broker takes over; who waited is gone."""
        self.driver = self.driver.restarted()
        self.unanswered.clear()

    @rule()
    def settle(self) -> None:
        """All markers are written: nothing stays prepared, and everybody has been answered."""
        self.driver.markers = list(self.driver.sent)
        self.driver.writes_markers = True
        self.driver.write_markers()
        self.driver.advance(COMPLETES_WITHIN_MS)
        self.driver.writes_markers = False
        assert not any(t.state in PREPARED for _, t in self.driver.shard._transactions.items())
        assert self.unanswered <= set(self.driver.replies)
        self.unanswered.clear()

    @invariant()
    def the_log_tells_one_story(self) -> None:
        """An outcome once prepared is the one completed; an epoch never falls while its producer id lasts."""
        for tid in ("a", "b"):
            for before, after in pairwise(self.driver.history(tid)):
                assert before is not None
                assert after is not None
                completes = {S.PREPARE_COMMIT: S.COMPLETE_COMMIT, S.PREPARE_ABORT: S.COMPLETE_ABORT}
                assert after.state is completes.get(before.state, after.state)
                assert before.state in PREPARED or after.state not in COMPLETED
                if after.identity.producer_id == before.identity.producer_id:
                    assert after.identity.producer_epoch >= before.identity.producer_epoch


COMPLETES_WITHIN_MS = 5_000

TestAgainstNaive = pytest.mark.slow(AgainstNaive.TestCase)
TestAgainstNaive.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestHostile = pytest.mark.slow(Hostile.TestCase)
TestHostile.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
