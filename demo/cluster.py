"""The year again, into three brokers, of which one is killed while it is written and another while it is loaded.

Everything is real: processes, ``kill -9``, the same unmodified client. The scene measures how long the partitions of
the killed leader stood still, and proves that the table has each event once and in order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from demo.flights import FlightEvent, events
from demo.processes import ONCELOG, Loaded, create_topic, load
from demo.replay import Replayed, replay
from demo.terminal import Output, Terminal
from oncelog.client.blocking import Client

TOPIC = "flights"
PARTITIONS = 6
BROKERS = 3
ROWS_PER_STEP = 220_000
_SHARE_BEFORE_KILL = 0.4
_HEALTHY_S = 120.0
_STOP_S = 60.0


@dataclass(slots=True)
class Survived:
    """The outcome of the scene; times in seconds since the replay began."""

    acknowledged: int = 0
    rows: int = 0
    missing: int = 0
    twice: int = 0
    out_of_order: int = 0
    killed: int = 0
    """The broker that was killed during the replay."""
    killed_at: float = 0.0
    moved: list[int] = field(default_factory=list)
    """Partitions that it led."""
    times: list[list[float]] = field(default_factory=list, repr=False)
    """Of acknowledgements, by partition."""
    loaded: Loaded = field(default_factory=Loaded)

    @property
    def pause(self) -> float:
        """The longest time from the kill until a partition of the killed leader acknowledged again."""
        return max((self._resumed(partition) - self.killed_at for partition in self.moved), default=0.0)

    @property
    def holds(self) -> bool:
        """True when all that was acknowledged is in the table, once, in order."""
        return self.rows == self.acknowledged > 0 and not (self.missing or self.twice or self.out_of_order)

    def _resumed(self, partition: int) -> float:
        return next((at for at in self.times[partition] if at > self.killed_at + _ON_THE_WAY_S), self.killed_at)


_ON_THE_WAY_S = 0.02
"""Acknowledgements that the client is told of so shortly after a kill were sent before it."""


@dataclass(frozen=True, slots=True)
class _Cluster:
    """Three brokers that run."""

    bootstrap_servers: str
    pids: dict[int, int]
    directory: Path

    def kill(self, broker: int) -> None:
        """SIGKILL."""
        os.kill(self.pids[broker], signal.SIGKILL)

    def leaders(self) -> dict[int, int]:
        """The leader of each partition."""
        with Client(self.bootstrap_servers) as client:
            partitions = client.topic(TOPIC).partitions
        return {index: info.leader for index, info in sorted(partitions.items())}

    @contextmanager
    def again(self, broker: int) -> Iterator[None]:
        """A killed broker, started on what it has on its disk."""
        command = [ONCELOG, "serve", "--config", str(self.directory / f"broker-{broker}.properties")]
        with (self.directory / f"broker-{broker}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            _end(process)

    def wait_healthy(self) -> float:
        """Wait until every replica is in sync again; the seconds that took."""
        command = [ONCELOG, "cluster", "status", "--bootstrap-servers", self.bootstrap_servers]
        begun = time.monotonic()
        while subprocess.run(command, capture_output=True, timeout=60, check=False).returncode:
            if time.monotonic() - begun > _HEALTHY_S:
                raise SystemExit(f"not all replicas were in sync {_HEALTHY_S:.0f} s after their broker came back")
        return time.monotonic() - begun


@contextmanager
def _cluster(directory: Path, log: Path) -> Iterator[_Cluster]:
    """``oncelog cluster up`` on free ports."""
    command = [ONCELOG, "cluster", "up", "--brokers", str(BROKERS), "--base-port", "0", "--json"]
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [*command, "--data-dir", str(directory)], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        line = _line(process.stdout)
        if not line:
            raise SystemExit(f"the cluster did not start: {log.read_text(encoding='utf-8')[-500:]}")
        up = json.loads(line)
        yield _Cluster(up["bootstrap_servers"], {one["broker_id"]: one["pid"] for one in up["brokers"]}, directory)
    finally:
        _end(process)


def _line(stream: IO[str] | None) -> str:
    return "" if stream is None else stream.readline()


def _end(process: subprocess.Popen[Any]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(_STOP_S)
    if process.stdout is not None:
        process.stdout.close()


def survive(out: Path, stream: Sequence[FlightEvent], told: Output) -> Survived:
    """Play the scene."""
    out.mkdir(parents=True, exist_ok=True)
    result = Survived(times=[[] for _ in range(PARTITIONS)])
    told.step(f"oncelog cluster up: {BROKERS} brokers, each record on {BROKERS} disks, acknowledged by all in sync")
    with _cluster(out / "brokers", out / "cluster.log") as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, PARTITIONS)
        told.step(f"the same {len(stream):,} events; a leader gets kill -9 on the way")
        replayed = _replay_with_kill(cluster, stream, result, told)
        result.acknowledged = replayed.acknowledged
        speed = replayed.acknowledged / replayed.seconds
        told.say(f"    {replayed.acknowledged:,} acknowledged, {replayed.refused} refused, {speed:,.0f} a second")
        moved = ", ".join(map(str, result.moved))
        told.say(
            f"    broker {result.killed} was killed at {result.killed_at:.1f} s, the leader of partitions {moved}:"
        )
        told.say(f"    they paused for {result.pause * 1000:,.0f} ms at most, until others led them")
        told.step(f"oncelog serve: broker {result.killed} again")
        with cluster.again(result.killed):
            told.say(f"    everything in sync again after {cluster.wait_healthy():.1f} s")
            told.step("oncelog load: into Parquet; another leader gets kill -9 on the way")
            result.loaded = _load_with_kill(cluster, out / "table", result, told)
    told.step("is it exactly once?")
    _prove(result, out / "table", len(stream))
    told.say(f"    {result.acknowledged:,} events acknowledged, {result.rows:,} rows in the table")
    told.say(f"    missing: {result.missing:,} · twice: {result.twice:,} · out of order: {result.out_of_order:,}")
    told.say(f"    {'exactly once' if result.holds else 'NOT exactly once'}")
    return result


def _replay_with_kill(cluster: _Cluster, stream: Sequence[FlightEvent], result: Survived, told: Output) -> Replayed:
    leaders = cluster.leaders()
    begun = time.monotonic()
    acknowledged = 0

    def delivered(partition: int) -> None:
        nonlocal acknowledged
        acknowledged += 1
        if acknowledged == int(len(stream) * _SHARE_BEFORE_KILL):
            result.killed = leaders[partition]
            result.moved = [index for index, leader in leaders.items() if leader == result.killed]
            cluster.kill(result.killed)
            result.killed_at = time.monotonic() - begun
        result.times[partition].append(time.monotonic() - begun)

    return replay(
        cluster.bootstrap_servers, TOPIC, stream, lambda done: told.progress(f"{done:,} acknowledged"), delivered
    )


def _load_with_kill(cluster: _Cluster, table: Path, result: Survived, told: Output) -> Loaded:
    """Load, and kill a leader that has not been killed yet when the first step is in the table."""
    first = next(leader for leader in cluster.leaders().values() if leader != result.killed)
    killed = False

    def on_line(line: str) -> None:
        nonlocal killed
        told.say(f"    {line}")
        if "step 1:" in line and not killed:
            killed = True
            cluster.kill(first)
            told.say(f"    kill -9 of broker {first}")

    return load(
        cluster.bootstrap_servers, TOPIC, table, rows_per_step=ROWS_PER_STEP, kill_half_way=False, on_line=on_line
    )


def _prove(result: Survived, table: Path, expected: int) -> None:
    """Compare the table with what was sent, row by row."""
    import pyarrow.dataset as dataset

    rows = dataset.dataset(table, format="parquet").to_table(columns=["partition", "offset", "key", "value"])
    result.rows = rows.num_rows
    last: dict[bytes, int] = {}
    seen = bytearray(expected)
    for key, value in zip(*_in_order(rows), strict=True):
        number = json.loads(value)["number"]
        result.twice += seen[number]
        seen[number] = 1
        result.out_of_order += last.get(key, -1) >= number
        last[key] = number
    result.missing = expected - sum(seen)


def _in_order(rows: Any) -> tuple[list[bytes], list[bytes]]:
    """Keys and values by partition and offset."""
    ordered = rows.sort_by([("partition", "ascending"), ("offset", "ascending")])
    return ordered["key"].to_pylist(), ordered["value"].to_pylist()


if __name__ == "__main__":
    sys.exit(not survive(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out/cluster"), events(), Terminal()).holds)
