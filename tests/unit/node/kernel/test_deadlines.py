from oncelog.node.kernel.deadlines import ALARMS_PER_SLICE, Deadlines


def test_alarms_run_in_order_of_time_then_of_setting():
    deadlines, ran = Deadlines(), []
    deadlines.at(20, lambda _: ran.append("late"))
    deadlines.at(10, lambda _: ran.append("first"))
    deadlines.at(10, lambda _: ran.append("second"))
    assert deadlines.next_ms() == 10
    deadlines.run_due(10)
    assert ran == ["first", "second"]
    deadlines.run_due(25)
    assert ran == ["first", "second", "late"]
    assert deadlines.next_ms() is None


def test_a_cancelled_alarm_never_runs_and_does_not_wake_the_node():
    deadlines, ran = Deadlines(), []
    alarm = deadlines.at(10, lambda _: ran.append("cancelled"))
    deadlines.at(30, lambda _: ran.append("kept"))
    deadlines.cancel(alarm)
    deadlines.cancel(alarm)
    assert deadlines.next_ms() == 30
    deadlines.run_due(40)
    assert ran == ["kept"]


def test_cancelled_alarms_do_not_pile_up():
    deadlines = Deadlines()
    for _ in range(10_000):
        deadlines.cancel(deadlines.at(1_000_000, lambda _: None))
    assert len(deadlines._heap) < 1_000


def test_an_alarm_may_set_another_that_is_due_at_once():
    deadlines, ran = Deadlines(), []
    deadlines.at(5, lambda now: deadlines.at(now, lambda _: ran.append("second")))
    deadlines.run_due(5)
    assert ran == ["second"]


def test_thousands_that_are_due_together_leave_others_their_turn():
    deadlines, called = Deadlines(), []
    for number in range(2 * ALARMS_PER_SLICE + 1):
        deadlines.at(5, lambda _now, number=number: called.append(number))
    turns = 0
    while (at_ms := deadlines.next_ms()) is not None and at_ms <= 7:
        deadlines.run_due(7)
        turns += 1
    assert turns == 3
    assert called == list(range(2 * ALARMS_PER_SLICE + 1))
