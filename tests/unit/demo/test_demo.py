"""The demonstration's data and pictures are what they say."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from demo import charts, console, page
from demo.cluster import Survived
from demo.flights import events
from demo.processes import Loaded

from oncelog.plotting.axes import value_ticks


@pytest.mark.slow
@pytest.mark.long
def test_the_year_is_complete_and_in_order() -> None:
    stream = events()
    assert len(stream) == 656_584
    assert all(before.timestamp_ms <= after.timestamp_ms for before, after in pairwise(stream))
    values = json.loads(b"[%b]" % b",".join(event.value for event in stream))  # at once: a third of the time
    first, last = values[0], values[-1]
    assert (first["number"], last["number"]) == (0, len(stream) - 1)
    assert (first["flight"], first["event"], stream[0].timestamp_ms) == ("UA1545", "departure", 1_357_035_420_000)
    departed: set[int] = set()
    for event, value in zip(stream, values, strict=True):
        assert event.key.decode() == value["tail"]
        if value["event"] == "departure":
            departed.add(value["trip"])
        else:
            assert value["trip"] in departed


def test_pictures_are_well_formed() -> None:
    first = Loaded(killed=True, seconds=4.0, committed=[(2.0, 100), (3.0, 200)])
    second = Loaded(seconds=3.0, committed=[(2.5, 300)])
    hours = [{"month": 7, "hour": 18, "departures": 900, "mean_delay": 31.5}]
    routes = [{"route": "JFK → LAX", "flights": 11196}, {"route": "A & B <C>", "flights": 5}]
    carriers = [{"carrier": "UA", "flights": 57_979, "on_time_percent": 79.0}]
    picture = charts.poster(
        charts.load_chart(first, 220, second, 520),
        charts.heat_map(hours),
        charts.route_bars(routes),
        charts.carrier_bars(carriers, {"UA": "United Air Lines Inc."}),
        "headline",
    )
    texts = [element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("text")]
    assert {"SIGKILL", "220 rows visible", "520 rows, each once", "A & B <C>", "United", "79 %"} <= set(texts)


def test_the_pause_after_a_kill_is_that_of_the_partitions_that_moved() -> None:
    survived = Survived(killed=2, killed_at=1.0, moved=[0], times=[[0.5, 1.01, 1.25], [0.9, 1.1, 1.2]])
    assert survived.pause == pytest.approx(0.25)
    picture = charts.pause_chart(survived).render("pause")
    assert "SIGKILL of broker 2" in picture
    assert ">250 ms<" in picture


@pytest.mark.parametrize(("rows", "missing", "holds"), [(10, 0, True), (9, 1, False), (0, 0, False)])
def test_a_cluster_has_survived_when_each_acknowledged_event_is_there_once(
    rows: int, missing: int, *, holds: bool
) -> None:
    assert Survived(acknowledged=10, rows=rows, missing=missing).holds is holds


def test_the_page_escapes_what_it_shows() -> None:
    made = page.Page("<title>", "lead")
    made.section("heading", "text", page.table([{"a": "<b>", "n": 1234.0}], {"a": "A", "n": "N"}))
    html = made.render()
    assert "<b>" not in html.replace("<b>1", "")
    assert "<td>&lt;b&gt;</td><td class='number'>1,234</td>" in html


@pytest.mark.parametrize(
    ("highest", "ticks"), [(656_584, [0, 200_000, 400_000, 600_000, 800_000]), (7, [0, 2, 4, 6, 8])]
)
def test_axes_have_round_numbers(highest: float, ticks: list[float]) -> None:
    assert value_ticks(highest) == ticks


def test_there_are_no_pictures_without_a_browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("ONCELOG_CHROMIUM", raising=False)
    assert console.browser() is None
    assert console.take("http://127.0.0.1:9/", {"a": "/"}, tmp_path / "pictures") == []
    assert not (tmp_path / "pictures").exists()
