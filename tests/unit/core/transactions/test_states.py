"""Every transition of the table, tried for real; and the table against Apache Kafka's, written out."""

from __future__ import annotations

import pytest

from oncelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TransactionalId
from oncelog.base.invariant import InvariantViolation
from oncelog.core.transactions.identity import Identity
from oncelog.core.transactions.states import (
    STATE_NAMES,
    VALID_PREVIOUS_STATES,
    TransactionState,
    may_follow,
    state_named,
)
from oncelog.core.transactions.transitions import (
    Transaction,
    add_partitions,
    complete,
    fence_and_prepare_abort,
    follow,
    initialise,
    keep,
    prepare,
)
from tests.scenario.transactions.driver import partitions

S = TransactionState
KAFKA = """
Empty <- Empty CompleteCommit CompleteAbort
Ongoing <- Ongoing Empty CompleteCommit CompleteAbort
PrepareCommit <- Ongoing
PrepareAbort <- Ongoing PrepareEpochFence Empty CompleteCommit CompleteAbort
CompleteCommit <- PrepareCommit
CompleteAbort <- PrepareAbort
Dead <- Empty CompleteAbort CompleteCommit
PrepareEpochFence <- Ongoing
"""


def in_state(state: TransactionState, **changes: object) -> Transaction:
    """A transaction in a state, with what goes with it."""
    is_open = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    made = Transaction(
        TransactionalId("x"),
        Identity(ProducerId(9), ProducerEpoch(3)),
        1000,
        state,
        last_update_ms=50,
        start_ms=-1 if state is S.EMPTY else 40,
        partitions=partitions(0) if is_open else (),
        last_epoch=ProducerEpoch(2),
    )
    return made._replace(**changes)  # type: ignore[arg-type]  # fields by name


def test_the_table_is_apache_kafkas() -> None:
    """Line by line."""
    for line in KAFKA.strip().splitlines():
        state, _, previous = line.partition(" <- ")
        named = {state_named(name) for name in previous.split()}
        assert VALID_PREVIOUS_STATES[state_named(state) or S.DEAD] == named
    assert len(KAFKA.strip().splitlines()) == len(VALID_PREVIOUS_STATES) == len(STATE_NAMES) == len(S)
    assert state_named("Open") is None


@pytest.mark.parametrize("previous", list(S))
@pytest.mark.parametrize("state", list(S))
def test_only_the_tables_transitions_are_made(previous: TransactionState, state: TransactionState) -> None:
    """All sixty-four."""
    if may_follow(previous, state):
        assert follow(in_state(previous), state=state).state is state
    else:
        with pytest.raises(InvariantViolation, match="X1"):
            follow(in_state(previous), state=state)


def test_what_each_transition_changes() -> None:
    """The fields that Apache Kafka's transition metadata would have."""
    ongoing = add_partitions(in_state(S.COMPLETE_COMMIT), partitions(1, 2), 2, 100)
    assert (ongoing.start_ms, ongoing.partitions, ongoing.last_epoch) == (100, partitions(1, 2), 2)
    more = add_partitions(ongoing, partitions(3), 0, 110)
    assert (more.start_ms, more.last_update_ms, more.client_version) == (100, 110, 0)

    before_v2 = prepare(more, committed=True, client_version=0, new_producer_id=NO_PRODUCER_ID, now_ms=120)
    assert (before_v2.identity, before_v2.last_epoch, before_v2.start_ms) == (more.identity, 2, 100)
    v2 = prepare(more, committed=False, client_version=2, new_producer_id=NO_PRODUCER_ID, now_ms=120)
    assert (v2.identity.producer_epoch, v2.last_epoch, v2.state) == (4, 3, S.PREPARE_ABORT)
    done = complete(v2, 130)
    assert (done.identity, done.partitions, done.start_ms, done.state) == (v2.identity, (), 100, S.COMPLETE_ABORT)

    empty = initialise(done, Identity(ProducerId(9), ProducerEpoch(5)), ProducerEpoch(4), 7, 140)
    assert (empty.start_ms, empty.timeout_ms, empty.last_epoch) == (-1, 7, 4)


def test_an_abort_of_nothing_starts_when_it_is_asked_for() -> None:
    """Transactions V2: Empty → PrepareAbort."""
    prepared = prepare(in_state(S.EMPTY), committed=False, client_version=2, new_producer_id=NO_PRODUCER_ID, now_ms=90)
    assert (prepared.start_ms, prepared.partitions, prepared.identity.producer_epoch) == (90, (), 4)


def test_a_fence_before_v2_forgets_the_last_epoch() -> None:
    """Nothing the old client sends may pass as a retry."""
    fenced = fence_and_prepare_abort(
        in_state(S.ONGOING), transaction_version=1, new_producer_id=NO_PRODUCER_ID, now_ms=60
    )
    assert (fenced.identity.producer_epoch, fenced.last_epoch, fenced.client_version) == (4, NO_PRODUCER_EPOCH, 0)


def test_an_exhausted_epoch_rotates_at_the_end() -> None:
    """The markers carry 32767; the next transaction has a new id and epoch 0."""
    ongoing = in_state(S.ONGOING, identity=Identity(ProducerId(9), ProducerEpoch(32766)))
    prepared = prepare(ongoing, committed=True, client_version=2, new_producer_id=ProducerId(70), now_ms=60)
    assert prepared.identity == (9, 32767)
    assert prepared.next_identity == (70, -1)
    done = complete(prepared, 61)
    assert (done.identity, done.previous_producer_id, done.next_identity) == ((70, 0), 9, (-1, -1))
    with pytest.raises(InvariantViolation, match="X6"):
        prepare(ongoing, committed=True, client_version=2, new_producer_id=NO_PRODUCER_ID, now_ms=60)


def test_a_kept_transaction_ends_under_its_own_epoch_and_goes_on_under_the_next() -> None:
    """KIP-939: three producer ids at once when the next one is exhausted too."""
    ongoing = in_state(S.ONGOING, identity=Identity(ProducerId(42), ProducerEpoch(32766)))
    kept = keep(ongoing, Identity(ProducerId(73), ProducerEpoch(32766)), NO_PRODUCER_EPOCH, 1000, 60)
    assert (kept.identity, kept.client_identity) == ((42, 32766), (73, 32766))
    prepared = prepare(kept, committed=True, client_version=2, new_producer_id=ProducerId(85), now_ms=61)
    assert (prepared.identity, prepared.next_identity, prepared.previous_producer_id) == ((42, 32767), (85, 0), 73)
    done = complete(prepared, 62)
    assert (done.identity, done.previous_producer_id, done.is_kept) == ((85, 0), 73, False)
