"""The commit protocol at single points: what a zombie, an operator and a lost answer come to."""

from __future__ import annotations

import pytest

from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.two_phase import operations, protocol
from oncelog.spark.sink.two_phase.errors import Behind, FencedDriver, LostRows, NotOpen, OtherRows, Superseded
from oncelog.spark.sink.two_phase.operations import End, ListOpen, Stage, Write
from oncelog.spark.sink.two_phase.protocol import TaskAction
from oncelog.spark.sink.two_phase.register import Attempt, Listed, Register, RegisterState, Written, begun
from tests.property.sink.model import Append, Model, Process, Running

FIRST = Attempt("q", 0, "run1")
AGAIN = Attempt("q", 0, "run2")


def run(model: Model, program: Process, process: int = 1) -> object:
    running = Running(process, program)
    while running.alive:
        running.step(model)
    if running.error is not None:
        raise running.error
    return running.result


def written(model: Model, attempt: Attempt, row: str) -> Listed:
    """A task's transaction, open."""
    assert run(model, protocol.begin(attempt)) is TaskAction.WRITE
    stored = run(model, protocol.claim(attempt, 0))
    assert isinstance(stored, StoredTransaction)
    assert model.answer(1, Append(stored, row))
    return Listed(stored, 1, (Written("out", 0, 1, 7, 7),))


def until(running: Running, model: Model, kind: type) -> None:
    """Run a process up to an operation, which is not answered."""
    while True:
        operation = running.process.send(running.answer)
        if isinstance(operation, kind):
            running.pending = operation  # type: ignore[attr-defined]  # for ``resume``
            return
        running.answer = model.answer(running.number, operation)


def resume(running: Running, model: Model) -> None:
    running.answer = model.answer(running.number, running.pending)  # type: ignore[attr-defined]  # of ``until``
    while running.alive:
        running.step(model)


def test_a_commit_may_be_repeated_and_decides_once() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    run(model, protocol.commit(FIRST, [one]))
    run(model, protocol.commit(FIRST, [one]))
    assert model.visible == ["a"]
    assert run(model, protocol.begin(AGAIN)) is TaskAction.DRAIN


def test_a_decided_epoch_is_finished_by_the_next_run_which_writes_nothing() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    dying = Running(5, protocol.commit(FIRST, [one]))
    until(dying, model, End)
    assert model.visible == []
    assert run(model, protocol.begin(AGAIN)) is TaskAction.DRAIN
    run(model, protocol.commit(AGAIN, []))
    assert model.visible == ["a"]


def test_what_an_undecided_run_left_is_aborted() -> None:
    model = Model()
    written(model, FIRST, "a")
    again = written(model, AGAIN, "a")
    assert [transaction.rows for transaction in model.transactions.values()] == [
        None,
        ["a"],
    ]  # as soon as the epoch begins again
    run(model, protocol.commit(AGAIN, [again]))
    assert model.visible == ["a"]
    assert all(transaction.rows is None for transaction in model.transactions.values())


def test_a_driver_whose_epoch_began_anew_decides_nothing() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    run(model, protocol.begin(AGAIN))
    with pytest.raises(Superseded):
        run(model, protocol.commit(FIRST, [one]))


def test_a_driver_fenced_between_its_fence_and_its_decision_decides_nothing() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    slow = Running(5, protocol.commit(FIRST, [one]))
    until(slow, model, Write)
    run(model, protocol.begin(AGAIN), process=6)
    resume(slow, model)
    assert isinstance(slow.error, FencedDriver)
    assert not model.decisions


def test_a_slow_sweep_does_not_hit_what_the_next_epoch_opened() -> None:
    """Listed before the fence is proved; what is opened later has another identity (P5)."""
    for stop in (ListOpen, Stage):
        model = Model()
        one = written(model, FIRST, "a")
        slow = Running(5, protocol.commit(FIRST, [one]))
        until(slow, model, stop)
        run(model, protocol.commit(FIRST, [one]), process=6)
        following = Attempt("q", 1, "run3")
        two = written(model, following, "b")
        resume(slow, model)
        assert isinstance(slow.error, FencedDriver)
        run(model, protocol.commit(following, [two]), process=7)
        assert model.visible == ["a", "b"]


def test_a_transaction_that_an_operator_ended_before_the_decision_stops_it() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    model.answer(9, End(one.stored, False))
    with pytest.raises(NotOpen, match="1 rows of out-0 at offsets 7–7"):
        run(model, protocol.commit(FIRST, [one]))
    assert not model.decisions
    assert run(model, protocol.begin(AGAIN)) is TaskAction.WRITE


def test_a_transaction_that_an_operator_ended_after_the_decision_stops_the_query_with_its_rows() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    slow = Running(5, protocol.commit(FIRST, [one]))
    until(slow, model, End)
    model.answer(9, End(one.stored, False))
    for _ in range(2):
        with pytest.raises(LostRows, match=r"1 rows of out-0 at offsets 7–7 .*acceptLoss=0"):
            run(model, protocol.commit(AGAIN, []))
    run(model, protocol.commit(AGAIN, [], accepted=0))
    assert model.register is not None
    assert model.register.state is RegisterState.DONE


def test_an_id_that_is_forgotten_after_the_decision_was_ended_before() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    slow = Running(5, protocol.commit(FIRST, [one]))
    until(slow, model, Stage)
    del model.transactions[one.stored.transactional_id]
    run(model, protocol.commit(FIRST, [one]))
    assert model.visible == ["a"]


def test_an_id_that_is_forgotten_after_its_rows_were_aborted_stops_the_query() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    slow = Running(5, protocol.commit(FIRST, [one]))
    until(slow, model, End)
    del model.transactions[one.stored.transactional_id]
    model.aborted.append(one)
    with pytest.raises(LostRows):
        run(model, protocol.commit(AGAIN, []))


def test_a_twin_that_finishes_late_aborts_itself() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    twin = written(model, FIRST, "a")
    run(model, protocol.commit(FIRST, [one]))
    assert run(model, protocol.confirm(FIRST, twin.stored)) is False
    assert run(model, protocol.confirm(FIRST, one.stored)) is False  # it is over: nothing counts any more
    assert model.visible == ["a"]


def test_an_aborted_run_can_neither_go_on_nor_be_decided() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    run(model, protocol.abort(FIRST))
    assert all(transaction.rows is None for transaction in model.transactions.values())
    with pytest.raises(Superseded):
        run(model, protocol.claim(FIRST, 0))
    with pytest.raises(Superseded):
        run(model, protocol.commit(FIRST, [one]))
    again = written(model, AGAIN, "a")
    run(model, protocol.commit(AGAIN, [again]))
    assert model.visible == ["a"]


def test_a_claim_from_before_the_next_epoch_is_refused() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    slow = Running(5, protocol.claim(FIRST, 0))
    until(slow, model, operations.Claim)
    run(model, protocol.commit(FIRST, [one]))
    following = Attempt("q", 1, "run3")
    model.tickets[protocol.ticket_id("q", 0)] += protocol.TASK_ID_COUNT - 1
    two = written(model, following, "b")
    assert two.stored.transactional_id == slow.pending.transactional_id  # type: ignore[attr-defined]  # of ``until``
    resume(slow, model)
    assert isinstance(slow.error, Behind)
    run(model, protocol.commit(following, [two]))
    assert model.visible == ["a", "b"]


def test_attempts_of_two_stage_attempts_never_share_an_identity() -> None:
    """Both claim before either has written: without names of their own, equal claims would be answered alike."""
    model = Model()
    assert run(model, protocol.begin(FIRST)) is TaskAction.WRITE
    twins = [Running(number, protocol.claim(FIRST, 0)) for number in (5, 6)]
    for twin in twins:
        until(twin, model, operations.Claim)
    for twin in twins:
        resume(twin, model)
    assert twins[0].result != twins[1].result
    model.answer(5, Append(twins[0].result, "a"))
    model.answer(6, Append(twins[1].result, "a"))
    run(model, protocol.commit(FIRST, [Listed(twins[0].result, 1)]))
    assert model.visible == ["a"]


def test_a_twin_that_claimed_before_the_decision_opens_nothing_after_it() -> None:
    """A transaction opened then would never be swept, if the query has no epoch after this one."""
    model = Model()
    one = written(model, FIRST, "a")
    twin = run(model, protocol.claim(FIRST, 0), process=2)
    assert isinstance(twin, StoredTransaction)
    run(model, protocol.commit(FIRST, [one]))
    assert not model.answer(2, Append(twin, "a"))
    assert all(transaction.rows is None for transaction in model.transactions.values())


def test_a_task_that_claims_while_its_run_is_given_up_opens_nothing() -> None:
    model = Model()
    written(model, FIRST, "a")
    abandoned = Running(5, protocol.abort(FIRST))
    until(abandoned, model, Stage)  # it has listed what is there
    with pytest.raises(Superseded):
        run(model, protocol.claim(FIRST, 0), process=2)
    resume(abandoned, model)
    assert all(transaction.rows is None for transaction in model.transactions.values())


def test_a_checkpoint_that_is_older_than_what_was_written_stops_the_query() -> None:
    model = Model()
    for epoch in range(3):
        attempt = Attempt("q", epoch, f"run{epoch}")
        run(model, protocol.commit(attempt, [written(model, attempt, f"{epoch}")], rows=1))
    rewound = Attempt("q", 1, "rewound")
    for program in (protocol.begin(rewound), protocol.claim(rewound, 0), protocol.commit(rewound, [], rows=9)):
        with pytest.raises(Behind, match=r"epoch 1 of query q .* epoch 2 .*acceptLoss=2"):
            run(model, program)
    assert run(model, protocol.begin(rewound, 2)) is TaskAction.DRAIN
    run(model, protocol.commit(rewound, [], rows=9, accepted=2))
    assert model.visible == ["0", "1", "2"]


def test_an_epoch_that_had_other_rows_when_it_was_decided_stops_the_query() -> None:
    model = Model()
    run(model, protocol.commit(FIRST, [written(model, FIRST, "a")], rows=1))
    assert run(model, protocol.begin(AGAIN)) is TaskAction.DRAIN
    run(model, protocol.commit(AGAIN, [], rows=1))
    with pytest.raises(OtherRows, match=r"has 2 rows, but 1 were written .*acceptLoss=0"):
        run(model, protocol.commit(AGAIN, [], rows=2))
    run(model, protocol.commit(AGAIN, [], rows=2, accepted=0))


def test_a_task_that_finds_its_own_run_begun_after_finishing_the_epoch_before_goes_on_with_it() -> None:
    model = Model()
    one = written(model, FIRST, "a")
    dying = Running(5, protocol.commit(FIRST, [one]))
    until(dying, model, End)
    following = Attempt("q", 1, "run3")
    slow = Running(6, protocol.begin(following))
    until(slow, model, operations.Publish)
    resume_once(slow, model)
    assert run(model, protocol.begin(following), process=7) is TaskAction.WRITE
    while slow.alive:
        slow.step(model)
    assert slow.result is TaskAction.WRITE
    assert model.register is not None
    assert model.register.superseded == ()


def resume_once(running: Running, model: Model) -> None:
    """Answer the operation that ``until`` left, no more."""
    running.answer = model.answer(running.number, running.pending)  # type: ignore[attr-defined]  # of ``until``


def test_loss_may_be_accepted_of_the_epoch_before() -> None:
    """Spark has its entry for it already, so that the next attempt is the next epoch's."""
    for finish in (protocol.begin, commit_nothing):
        model = Model()
        one = written(model, FIRST, "a")
        slow = Running(5, protocol.commit(FIRST, [one]))
        until(slow, model, End)
        model.answer(9, End(one.stored, False))
        following = Attempt("q", 1, "run3")
        with pytest.raises(LostRows):
            run(model, finish(following, None))
        run(model, finish(following, 0))
        run(model, protocol.commit(following, []))
        assert model.register == Register(1, "run3", RegisterState.DONE)


def commit_nothing(attempt: Attempt, accepted: int | None) -> Process:
    return protocol.commit(attempt, [], accepted=accepted)


def test_an_epoch_cannot_begin_while_the_one_before_is_decided() -> None:
    with pytest.raises(SinkError):
        begun(Register(0, "run", RegisterState.DECIDED), Attempt("q", 1, "other"))
