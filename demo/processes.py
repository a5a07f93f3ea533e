"""The processes of the demonstration: a broker, and loads of which one is killed half way."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ONCELOG = str(Path(sys.executable).with_name("oncelog"))

_READY = re.compile(r"ready on (\S+:\d+)")
_STEP = re.compile(r"step (\d+): ([\d,]+) of ([\d,]+) offsets, ([\d,]+) rows")
_SHARE_BEFORE_KILL = 0.45


@contextmanager
def broker(data_directory: Path, log: Path, *options: str) -> Iterator[tuple[str, str]]:
    """``oncelog serve`` on a free port: its address, and the line it announced itself with."""
    command = [ONCELOG, "serve", "--data-dir", str(data_directory), "--listen", "127.0.0.1:0"]
    command += [text for option in options for text in ("-o", option)]
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            found = _READY.search(line)
            if found:
                yield found[1], line.strip()
                return
        raise SystemExit(f"the broker did not start: {log.read_text(encoding='utf-8')[-500:]}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """By the command line; nothing in it is ever old enough to be deleted, though all of it happened in 2013."""
    command = [ONCELOG, "topic", "create", topic, "--partitions", str(partitions), "--config", "retention.ms=-1"]
    subprocess.run([*command, "--bootstrap-server", bootstrap_servers], check=True, capture_output=True)


@dataclass(slots=True)
class Loaded:
    """One run of ``oncelog load``: when how many of its rows were committed, in seconds since it began."""

    killed: bool = False
    seconds: float = 0.0
    committed: list[tuple[float, int]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Rows that it said were committed."""
        return self.committed[-1][1] if self.committed else 0


def load(
    bootstrap_servers: str,
    topic: str,
    table: Path,
    *,
    rows_per_step: int,
    kill_half_way: bool,
    on_line: Callable[[str], None],
) -> Loaded:
    """Run ``oncelog load``; with ``kill_half_way`` it gets a SIGKILL in the middle of a step."""
    command = [ONCELOG, "load", topic, "--to", str(table), "--rows-per-step", str(rows_per_step)]
    started = time.monotonic()
    result = Loaded()
    with subprocess.Popen(
        [*command, "--bootstrap-server", bootstrap_servers],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            on_line(line.strip())
            step = _STEP.search(line)
            if step is None:
                continue
            done, total, rows = (int(step[group].replace(",", "")) for group in (2, 3, 4))
            result.committed.append((time.monotonic() - started, rows))
            if kill_half_way and done >= total * _SHARE_BEFORE_KILL:
                time.sleep(random.uniform(0.1, 0.6))
                process.kill()
                result.killed = True
                break
    result.seconds = time.monotonic() - started
    if not result.killed and process.returncode:
        raise SystemExit("the load failed: " + "".join(lines[-3:]))
    return result


def versions() -> dict[str, Any]:
    """The versions of the programs that took part."""
    import confluent_kafka
    import pyspark

    from oncelog import __version__

    return {
        "oncelog": __version__,
        "confluent-kafka": confluent_kafka.version(),
        "PySpark": pyspark.__version__,
        "Python": ".".join(map(str, sys.version_info[:3])),
    }


def write_json(path: Path, value: Any) -> None:
    """Write the figures as JSON."""
    path.write_text(json.dumps(value, indent=2, default=str), encoding="utf-8")
