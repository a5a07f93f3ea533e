"""The last diagnosis of the whole cluster, made in a thread of its own and shared by all pages.

The rule: a page waits for the first diagnosis, or for one that began after a change, and otherwise at most
``BRIEF_S``: then it shows the last one with its age. A diagnosis is made only when a page needs one, one at a time, and
takes at most a quarter of the time. After a failure the last diagnosis stays, with the reason, and for ``MAX_AGE_S`` no
page starts another.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oncelog.client.blocking.client import Client
from oncelog.client.errors import ClientError
from oncelog.console.cluster.access import ClusterSlow

if TYPE_CHECKING:
    from oncelog.admin.explain.cluster_report import ClusterReport

MAX_AGE_S: Final = 2.0
SHARE: Final = 4  # A diagnosis takes at most one part in SHARE of the time.
FIRST_S: Final = 9.0
BRIEF_S: Final = 0.2
PEEK_S: Final = 2.0
LATE_S: Final = 3.0  # From then on a page says that the cluster does not answer.
MAX_POSITIONS: Final = 8  # Diagnoses whose positions of groups are kept, for their rates.
MIN_WINDOW_MS: Final = 4_000


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """``age_s`` is the time since it was made; ``error`` says why there is no newer one. ``rates`` are offsets a second
    by group, of those that have been seen for some seconds.
    """

    report: ClusterReport
    age_s: float
    error: str | None
    rates: Mapping[str, float]
    period_s: float  # The time after which there is usually a newer one.


class Diagnoses:
    def __init__(
        self, connect: Callable[[], Client], options: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connect = connect
        self._options = options
        self._clock = clock
        self._changed = threading.Condition()
        self._client: Client | None = None
        self._report: ClusterReport | None = None
        self._error: ClientError | None = None
        self._generation = 0
        self._report_generation = -1
        self._tried_generation = -1
        self._began_s = self._ended_s = self._took_s = self._failed_s = 0.0
        self._is_running = self._is_closed = False
        self._positions: deque[tuple[int, dict[str, int]]] = deque(maxlen=MAX_POSITIONS)

    def current(self) -> Diagnosis:
        """Raises ClientError without a first one, and ClusterSlow."""
        with self._changed:
            generation, deadline = self._generation, self._clock() + FIRST_S
            # One that was under way when a change was made does not show it.
            has_begun = False
            while self._report_generation < generation and not has_begun and self._clock() < deadline:
                if self._has_just_failed(generation):
                    break
                has_begun = self._begin(at_once=True)
                self._changed.wait_for(lambda: not self._is_running, max(0.0, deadline - self._clock()))
            if self._report_generation >= generation:
                self._begin(at_once=False)
                self._changed.wait_for(lambda: not self._is_running, BRIEF_S)
            if self._report is None:
                raise self._error or ClusterSlow("the first look at the whole cluster is not done yet; try again")
            return self._diagnosis(self._report)

    def peek(self, first_s: float = PEEK_S) -> Diagnosis | None:
        """The last diagnosis, for a page that is useful without; None before the first, after a short wait."""
        with self._changed:
            self._begin(at_once=self._report is None and not self._has_just_failed(0))
            self._changed.wait_for(lambda: not self._is_running, BRIEF_S if self._report is not None else first_s)
            if self._report is None:
                return None
            return self._diagnosis(self._report)

    def glance(self, wait_s: float) -> tuple[Diagnosis | None, str | None]:
        """The last diagnosis, and why there is no newer one; waits only while there is neither."""
        with self._changed:
            is_unknown = self._report is None and self._error is None
            self._begin(at_once=is_unknown)
            if is_unknown:
                self._changed.wait_for(lambda: not self._is_running, wait_s)
            if self._report is None:
                return None, None if self._error is None else str(self._error)
            diagnosis = self._diagnosis(self._report)
            return diagnosis, diagnosis.error

    def forget(self) -> None:
        """A change was made: the next page waits for a diagnosis that shows it."""
        with self._changed:
            self._generation += 1

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            client, self._client = self._client, None
            if client is not None and not self._is_running:
                client.close()

    def _diagnosis(self, report: ClusterReport) -> Diagnosis:
        error = None if self._error is None else str(self._error)
        waited_s = self._clock() - self._began_s if self._is_running else 0.0
        if waited_s > max(LATE_S, SHARE * self._took_s):
            error = f"no answer for {waited_s:.0f} s"
        period_s = self._took_s + self._pause_s()
        return Diagnosis(report, self._clock() - self._ended_s, error, self._rates(report), period_s)

    def _pause_s(self) -> float:
        return max(MAX_AGE_S, self._took_s * (SHARE - 1))

    def _has_just_failed(self, generation: int) -> bool:
        """True if a diagnosis that would show a change failed a moment ago: another would fail, too."""
        has_tried = self._error is not None and self._tried_generation >= generation and not self._is_running
        return has_tried and self._clock() - self._failed_s <= MAX_AGE_S

    def _begin(self, *, at_once: bool) -> bool:
        """Begin a diagnosis if none is under way and the last one is old. Returns False otherwise."""
        if self._is_running or self._is_closed:
            return False
        is_young = self._clock() - self._ended_s <= self._pause_s() or self._has_just_failed(0)
        if is_young and not at_once:
            return False
        self._is_running, self._began_s = True, self._clock()
        threading.Thread(target=self._run, name="oncelog-console-diagnosis", daemon=True).start()
        return True

    def _run(self) -> None:
        # Imported late: explaining needs half of the administration.
        from oncelog.admin.explain.whole_cluster import explain_cluster

        generation, began_s = self._generation, self._clock()
        report, error = None, None
        client = self._client
        try:
            if client is None:
                client = self._connect()
            earlier = None if self._report is None else self._report.id_facts
            report = explain_cluster(client, options=self._options, earlier=earlier)
        except ClientError as failed:
            error = failed
        except Exception as failed:  # noqa: BLE001  # The page tells it; the next one tries again.
            error = ClientError(f"the diagnosis failed: {type(failed).__name__}: {failed}")
        if error is not None and client is not None:
            client.close()  # Its connections may hold unread answers.
            client = None
        with self._changed:
            self._client, self._error, self._tried_generation = client, error, generation
            if report is not None:
                self._report, self._report_generation = report, generation
                self._positions.append((report.now_ms, {group.group: group.position for group in report.groups}))
                self._ended_s = self._clock()
                self._took_s = self._ended_s - began_s
            else:
                self._failed_s = self._clock()
            self._is_running = False
            if self._is_closed and client is not None:
                client.close()
            self._changed.notify_all()

    def _rates(self, report: ClusterReport) -> dict[str, float]:
        before_ms, positions = self._positions[0]
        window_ms = report.now_ms - before_ms
        if window_ms < MIN_WINDOW_MS:
            return {}
        return {
            group.group: max(0, group.position - positions[group.group]) * 1000 / window_ms
            for group in report.groups
            if group.group in positions and group.is_counted
        }
