"""A failed Spark job in one line."""

from __future__ import annotations

from oncelog.spark.jobs.spark_reader import one_line_error


def test_our_own_error_is_found_under_sparks_tracebacks() -> None:
    text = (
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times\n"
        "Traceback (most recent call last):\n"
        '  File "reading.py", line 38, in read_range\n'
        "oncelog.spark.session.errors.DataLoss: topic 't', partition 0: requested offset 1, available is 4: gone.\n"
        "\tat org.apache.spark.Something\n"
    )
    assert (
        str(one_line_error(RuntimeError(text))) == "topic 't', partition 0: requested offset 1, available is 4: gone."
    )


def test_another_error_keeps_its_first_line() -> None:
    assert str(one_line_error(RuntimeError("No space left on device\nmore"))) == "Spark: No space left on device"
