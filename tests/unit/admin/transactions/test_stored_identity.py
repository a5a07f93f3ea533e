"""The judgement about a stored identity: states of the coordinator × the coordinator's log × the time it was stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncelog.admin.transactions.stored_identity import EndAction, Evidence, IdentityState, PastTransaction, judge
from oncelog.admin.transactions.transactional_ids import TransactionRow
from oncelog.base.transaction_verdicts import NEVER_TIMES_OUT
from oncelog.client.machine.transaction_values import StoredTransaction
from tests.unit.admin.transactions.samples import HERE

STORED = StoredTransaction("job", 7, 3)
STORED_AT = 2_000
ROW = TransactionRow("job", 1, "Ongoing", 7, 3, 60_000, 1_000, frozenset({HERE}))
V1 = PastTransaction(7, 3, 1_000, None, None)
V2 = V1._replace(client_version=2)


def row(state: str, epoch: int = 3, start_ms: int | None = 1_000, producer_id: int = 7) -> TransactionRow:
    return replace(ROW, state=state, producer_epoch=epoch, start_ms=start_ms, producer_id=producer_id)


def ended(past: PastTransaction, committed: bool) -> PastTransaction:
    return past._replace(committed=committed, ended_ms=past.start_ms + 100)


@pytest.mark.parametrize(
    ("present", "past", "state", "actions"),
    [
        (ROW, (), IdentityState.OPEN, "end end"),
        (ROW, (V2,), IdentityState.OPEN, "end end"),
        (row("PrepareCommit"), (V1,), IdentityState.COMMITTING, "nothing refuse"),
        (row("PrepareCommit", 4), (V2,), IdentityState.COMMITTING, "nothing refuse"),
        (row("PrepareAbort", 4), (V2,), IdentityState.ABORTING, "refuse nothing"),
        (row("PrepareEpochFence", 4), (V1,), IdentityState.ABORTING, "refuse nothing"),
        (row("CompleteCommit"), (ended(V1, True),), IdentityState.COMMITTED, "nothing refuse"),
        (row("CompleteCommit"), (), IdentityState.AMBIGUOUS, "refuse refuse"),
        (row("CompleteAbort"), (), IdentityState.ABORTED, "refuse nothing"),
        (row("CompleteCommit", 4), (ended(V2, True),), IdentityState.COMMITTED, "nothing refuse"),
        (row("CompleteAbort", 4), (ended(V1, False),), IdentityState.ABORTED, "refuse nothing"),
        (row("Empty", start_ms=None), (), IdentityState.EMPTY, "nothing nothing"),
        # Under V2 the end of epoch 2 gives epoch 3, which nothing has used.
        (
            row("CompleteAbort"),
            (V2._replace(producer_epoch=2, committed=False),),
            IdentityState.EMPTY,
            "nothing nothing",
        ),
        # Epoch 4 may come from the end of epoch 3 (V2) or from a new instance (V1): without the log it is unknown.
        (row("CompleteCommit", 4), (), IdentityState.MOVED_ON, "refuse refuse"),
        (
            row("CompleteCommit", 4),
            (ended(V1._replace(producer_epoch=4), True),),
            IdentityState.MOVED_ON,
            "refuse refuse",
        ),
        (row("Ongoing", 5), (), IdentityState.MOVED_ON, "refuse refuse"),
        (row("Ongoing", producer_id=8), (), IdentityState.MOVED_ON, "refuse refuse"),
        (row("Ongoing", 5), (ended(V2, True),), IdentityState.COMMITTED, "nothing refuse"),
        (row("Ongoing", 0, producer_id=8), (ended(V2, False),), IdentityState.ABORTED, "refuse nothing"),
        (row("Ongoing", 2), (), IdentityState.BEHIND, "refuse refuse"),
        (None, (), IdentityState.EXPIRED, "refuse refuse"),
        (None, (ended(V1, True),), IdentityState.COMMITTED, "nothing refuse"),
    ],
)
def test_each_state(
    present: TransactionRow | None, past: tuple[PastTransaction, ...], state: IdentityState, actions: str
) -> None:
    judgement = judge(Evidence(STORED, present, past))
    assert judgement.state is state, judgement
    assert f"{judgement.action(commit=True).value} {judgement.action(commit=False).value}" == actions
    assert not judgement.reason.endswith(".")


def test_an_earlier_transaction_under_the_identity_makes_the_open_one_ambiguous() -> None:
    earlier = ended(V1._replace(start_ms=500), True)
    judgement = judge(Evidence(STORED, ROW, (earlier, V1)))
    assert judgement.state is IdentityState.AMBIGUOUS
    assert judgement.action(commit=True) is judgement.action(commit=False) is EndAction.REFUSE
    assert "1 earlier transaction before" in judgement.reason
    by_records = judge(Evidence(STORED, ROW, (), has_earlier_records=True))
    assert by_records.state is IdentityState.AMBIGUOUS


def test_the_time_it_was_stored_tells_the_open_one_from_a_later_one() -> None:
    earlier = ended(V1._replace(start_ms=500), True)
    meant = judge(Evidence(STORED, ROW, (earlier, V1), STORED_AT))
    assert (meant.state, meant.may_name_another) == (IdentityState.OPEN, True)
    later = replace(ROW, start_ms=3_000)
    unknown = judge(Evidence(STORED, later, (), STORED_AT))
    assert unknown.state is IdentityState.LATER
    told = judge(Evidence(STORED, later, (earlier, V1._replace(start_ms=3_000)), STORED_AT))
    assert told.state is IdentityState.COMMITTED
    assert "a later transaction is open under the same identity" in told.reason
    ended_later = judge(Evidence(STORED, row("CompleteCommit", start_ms=3_000), (), STORED_AT))
    assert ended_later.state is IdentityState.LATER


def test_ends_that_differ_make_the_identity_ambiguous() -> None:
    past = (ended(V1._replace(start_ms=500), False), ended(V1, True))
    assert judge(Evidence(STORED, row("CompleteCommit"), past)).state is IdentityState.AMBIGUOUS
    assert judge(Evidence(STORED, row("CompleteCommit"), past, STORED_AT)).state is IdentityState.COMMITTED
    assert judge(Evidence(STORED, row("CompleteCommit"), past, 600)).state is IdentityState.ABORTED
    alike = (ended(V1._replace(start_ms=500), True), ended(V1, True))
    assert judge(Evidence(STORED, row("CompleteCommit"), alike)).state is IdentityState.COMMITTED
    assert judge(Evidence(STORED, row("CompleteCommit"), (), STORED_AT)).state is IdentityState.COMMITTED


def test_a_v2_identity_names_one_transaction_whatever_the_clocks_say() -> None:
    ahead = judge(Evidence(STORED, replace(ROW, start_ms=3_000), (V2._replace(start_ms=3_000),), STORED_AT))
    assert (ahead.state, ahead.may_name_another) == (IdentityState.OPEN, False)
    over = (ended(V2._replace(start_ms=3_000), True),)
    complete = row("CompleteCommit", 4, 3_000)
    assert judge(Evidence(STORED, complete, over, STORED_AT)).state is IdentityState.COMMITTED
    assert judge(Evidence(STORED, row("Ongoing", 9), over, STORED_AT)).state is IdentityState.COMMITTED
    used = (ended(V2, True), V2._replace(start_ms=3_000))
    assert judge(Evidence(STORED, replace(ROW, start_ms=3_000), used, STORED_AT)).state is IdentityState.COMMITTED


def test_a_prepared_transaction_may_have_been_taken_over() -> None:
    prepared = replace(ROW, producer_epoch=4, timeout_ms=NEVER_TIMES_OUT)
    assert "a new instance may have taken over" in judge(Evidence(STORED, prepared)).reason


def test_v2_clients_leave_no_race() -> None:
    assert judge(Evidence(STORED, ROW, (V1,))).may_name_another
    assert judge(Evidence(STORED, ROW, ())).may_name_another, "the log was not read"
    assert not judge(Evidence(STORED, ROW, (V2,))).may_name_another
    assert not judge(Evidence(STORED, ROW, (V2,), STORED_AT)).may_name_another


def test_several_ended_ones_are_listed_when_none_can_be_chosen() -> None:
    past = (ended(V1._replace(start_ms=500), True), ended(V1, False))
    judgement = judge(Evidence(STORED, row("Empty", 5, None), past))
    assert judgement.state is IdentityState.MOVED_ON
    assert "2 transactions of this identity (committed 1970-01-01 00:00:00 UTC, aborted" in judgement.reason
    assert judge(Evidence(STORED, row("Empty", 5, None), past, 600)).state is IdentityState.COMMITTED
    assert judge(Evidence(STORED, row("Empty", 5, None), past, STORED_AT)).state is IdentityState.ABORTED


def test_a_loss_by_time_out_is_named() -> None:
    past = ended(V1, False)._replace(ended_ms=61_000, after_timeout=True)
    judgement = judge(Evidence(STORED, row("CompleteAbort", 4), (past,)))
    assert "1 min after its begin: its time-out had passed" in judgement.reason
    assert "its records are lost" in judgement.reason
