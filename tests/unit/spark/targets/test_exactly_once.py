"""Delta on S3 and Iceberg in a REST catalog have each row once, wherever a load dies and whichever answer is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from oncelog.spark.jobs.load_report import Event
from oncelog.spark.table.directory import TableError
from oncelog.spark.targets.table_target import Span, TableMoved
from tests.peers.s3 import ObjectStore
from tests.unit.spark.targets.tables import Lake, good_and_bad, log_of, values

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning"
    ),  # pyiceberg leaves its catalogs' connections to the collector
]
KINDS = ("delta", "iceberg-rest")
Lakes = Callable[[str], Lake]


class Died(BaseException):
    """The process, where the test wants it."""


@pytest.mark.parametrize("kind", [*KINDS, pytest.param("iceberg-sql", marks=pytest.mark.long)])
def test_each_row_is_there_once_wherever_a_load_dies(lake: Lakes, kind: str) -> None:
    place, log = lake(kind), log_of(20, 3, bad=True)
    for point, step in (("writing", 0), ("written", 0), ("publishing", 1), ("committed", 1)):

        def die(event: Event, place_of_death: tuple[str, int] = (point, step)) -> None:
            if (event.kind, event.step) == place_of_death:
                raise Died

        with pytest.raises(Died):
            place.load(log, rows_per_step=12, on_event=die)
        seen = place.rows()
        assert len(seen) == len(set(seen))
        log.partitions["t", 1] += values(len(log.partitions["t", 1]), len(log.partitions["t", 1]) + 9, bad=True)
    report = place.load(log)
    assert (place.rows(), place.bad()) == good_and_bad(log)
    assert report.quarantine == str(place.address.quarantine)
    assert place.load(log).rows == 0
    assert place.spans(log) == {("t", 0): Span(0, 20), ("t", 1): Span(0, 39)}


@pytest.mark.parametrize("what", ["answer", "request"])
def test_a_lost_answer_or_request_doubles_and_loses_nothing(lake: Lakes, kind_and_times: str, what: str) -> None:
    place, log = lake(kind_and_times), log_of(5)
    place.load(log)
    for _ in range(2):
        log.partitions["t", 0] += values(len(log.partitions["t", 0]), len(log.partitions["t", 0]) + 5)
        lost = place.commits.lost()
        place.commits.lose(place.commit_method, place.commit_path, what)  # type: ignore[arg-type]
        with suppress(TableError):  # pyiceberg does not repeat a request that was lost
            place.load(log)
        place.load(log)
        assert place.commits.lost() == lost + 1
        assert place.rows() == good_and_bad(log)[0]


@pytest.fixture(params=KINDS)
def kind_and_times(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("kind", [*KINDS, "iceberg-sql"])
def test_of_two_loads_that_race_one_is_refused(lake: Lakes, kind: str) -> None:
    place, log = lake(kind), log_of(5, bad=True)
    place.load(log)
    log.partitions["t", 0] += values(5, 15)
    both, refused = threading.Barrier(2), list[Exception]()

    def meet(event: Event) -> None:
        if event.kind == "publishing":
            both.wait()

    def run() -> None:
        try:
            place.load(log, on_event=meet)
        except TableMoved as error:
            refused.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert "meanwhile; nothing was written. Run it again" in str(refused[0])
    assert (place.rows(), place.bad()) == good_and_bad(log)


@pytest.mark.parametrize("kind", KINDS)
def test_loads_of_two_topics_into_one_table_wait_for_each_other(lake: Lakes, kind: str) -> None:
    place, log = lake(kind), log_of(4)
    log.partitions["u", 0] = values(0, 4)
    log.ids["u"] = "id-u"
    place.load(log)
    first, second = log_of(9), log_of(0)
    first.ids = second.ids = log.ids
    second.partitions = {("u", 0): values(0, 9)}

    def load_the_other(event: Event) -> None:
        if event.kind == "publishing":
            place.load(second)

    place.load(first, on_event=load_the_other)
    first.partitions |= second.partitions
    assert place.rows() == first.rows()
    assert set(place.spans(first).values()) == {Span(0, 9)}


def test_deltas_commits_are_conditional_puts(lake: Lakes, store: ObjectStore) -> None:
    place, before = lake("delta"), len(store.conditional_puts())
    place.load(log_of(5))
    made = [path for path, status in store.conditional_puts()[before:] if status == 200]
    assert any(path.endswith("/_delta_log/00000000000000000001.json") for path in made)
    assert all("_delta_log" in path for path in made)
