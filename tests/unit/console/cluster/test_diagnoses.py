"""The last diagnosis of a cluster: pages do not wait for a slow one, and it outlives the cluster's answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from oncelog.admin.explain import whole_cluster
from oncelog.admin.explain.cluster_report import ClusterReport, GroupSummary, TopicLag, report_of
from oncelog.client.errors import ClientError
from oncelog.console.cluster import diagnoses as diagnoses_module
from oncelog.console.cluster.diagnoses import SHARE, Diagnoses
from tests.unit.admin.explain.test_cluster_report import STATUS


class FakeClient:
    def close(self) -> None:
        """Nothing is open."""


class FakeCluster:
    """Answers with reports, or an error; ``slow`` makes an answer wait until it is set."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.error: ClientError | None = None
        self.slow: threading.Event | None = None
        self.begun = threading.Semaphore(0)
        self.count = 0
        self.took_s = 0.0

    def explain(self, client: Any, *, options: str, earlier: object) -> ClusterReport:
        self.begun.release()
        self.count += 1
        number = self.count
        if self.slow is not None:
            assert self.slow.wait(60)
        self.now_s += self.took_s
        if self.error is not None:
            raise self.error
        group = GroupSummary("g", "Stable", "classic", "consumer", 1, 1, {"t": TopicLag(1, 5, 5)}, number * 100)
        return replace(report_of(STATUS, [], [], [group], [], number * 10_000), summary=f"look {number}")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    monkeypatch.setattr(whole_cluster, "explain_cluster", made.explain)
    # A busy machine starts threads late: these pages wait for one that is quick in their own time.
    monkeypatch.setattr(diagnoses_module, "BRIEF_S", 60.0)
    return made


@pytest.fixture
def diagnoses(cluster: FakeCluster) -> Iterator[Diagnoses]:
    made = Diagnoses(FakeClient, "", clock=lambda: cluster.now_s)  # type: ignore[arg-type]  # it only closes it
    yield made
    made.close()


def test_pages_share_one_diagnosis_while_it_is_young(cluster: FakeCluster, diagnoses: Diagnoses) -> None:
    assert [diagnoses.current().report.summary for _ in range(3)] == ["look 1"] * 3
    cluster.now_s += 3
    assert diagnoses.current().report.summary == "look 2"
    assert diagnoses.current().rates == {"g": 10.0}, "offsets a second between two diagnoses"


def test_a_page_shows_the_last_one_while_a_slow_one_is_made(
    cluster: FakeCluster, diagnoses: Diagnoses, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnoses.current()
    monkeypatch.setattr(diagnoses_module, "BRIEF_S", 0.01)
    cluster.now_s += 3
    cluster.slow = threading.Event()
    for _ in range(2):
        shown = diagnoses.current()
        assert (shown.report.summary, shown.age_s) == ("look 1", 3)
    assert cluster.count <= 2, "one at a time"
    assert shown.error is None
    cluster.now_s += 5
    assert diagnoses.current().error == "no answer for 5 s"
    cluster.slow.set()


def test_diagnoses_take_a_part_of_the_time(cluster: FakeCluster, diagnoses: Diagnoses) -> None:
    cluster.took_s = 4.0
    diagnoses.current()
    cluster.now_s += 4.0 * (SHARE - 1) - 1
    assert diagnoses.current().report.summary == "look 1"
    cluster.now_s += 2
    assert diagnoses.current().report.summary == "look 2"


def test_a_page_after_a_change_waits_for_one_that_shows_it(
    cluster: FakeCluster, diagnoses: Diagnoses, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagnoses.current()
    monkeypatch.setattr(diagnoses_module, "BRIEF_S", 0.01)
    cluster.now_s += 3
    cluster.slow = threading.Event()
    diagnoses.current()
    assert all(cluster.begun.acquire(timeout=60) for _ in range(2)), "the second is under way"
    diagnoses.forget()
    pages: list[str] = []
    page = threading.Thread(target=lambda: pages.append(diagnoses.current().report.summary))
    page.start()
    cluster.slow.set()
    page.join(60)
    assert pages == ["look 3"], "the one under way had begun before the change"


def test_the_last_picture_stays_with_the_reason_for_which_there_is_no_newer_one(
    cluster: FakeCluster, diagnoses: Diagnoses
) -> None:
    cluster.error = ClientError("no broker answers")
    with pytest.raises(ClientError, match="no broker answers"):
        diagnoses.current()
    assert diagnoses.peek() is None
    cluster.error = None
    cluster.now_s += 3
    diagnoses.current()
    cluster.error = ClientError("no broker answers")
    cluster.now_s += 60
    shown = diagnoses.current()
    assert (shown.report.summary, shown.age_s, shown.error) == ("look 2", 60, "no broker answers")
    cluster.error = None
    cluster.now_s += 60
    again = diagnoses.current()
    assert (again.error, again.report.summary) == (None, "look 4")


def test_a_cluster_that_fails_is_not_asked_again_by_each_page(cluster: FakeCluster, diagnoses: Diagnoses) -> None:
    cluster.error = ClientError("no broker answers")
    for _ in range(5):
        with pytest.raises(ClientError, match="no broker answers"):
            diagnoses.current()
        assert diagnoses.peek() is None
    assert cluster.count == 1
    cluster.now_s += 3
    assert diagnoses.peek() is None
    assert cluster.count == 2
    cluster.now_s += 3
    cluster.error = None
    diagnoses.current()
    cluster.error = ClientError("no broker answers")
    cluster.now_s += 3
    assert {diagnoses.current().error for _ in range(5)} == {"no broker answers"}
    assert cluster.count == 4
    diagnoses.forget()
    assert {diagnoses.current().error for _ in range(5)} == {"no broker answers"}
    assert cluster.count == 5, "a change is looked for once"
