"""Topics to Arrow: `oncelog.read_arrow` beside confluent-kafka with its records put into Arrow columns by hand.

Each measurement is a process of its own (`python -m bench.arrow CLIENT SERVERS TOPIC COUNT`), so that processor time is
the reader's alone; imports are done before the clock starts, connecting is part of it. Memory is the most that was
resident, libraries included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from bench.peers import Broker

ARROW_GOALS: Final = {"rows/s": "≥ 3 ×", "CPU µs/row": "≤ 0.3 ×"}
_SLICE: Final = 10_000


def with_oncelog(servers: str, topic: str, count: int) -> int:
    """Rows read by our reader."""
    from oncelog.arrow import read_arrow

    return sum(batch.num_rows for batch in read_arrow(topic, bootstrap_servers=servers))


def with_confluent(servers: str, topic: str, count: int) -> int:
    """Rows read by librdkafka and made into the same columns."""
    import pyarrow as pa
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 200_000,
            "queued.min.messages": 1_000_000,
            "fetch.message.max.bytes": 8_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    rows = 0
    while rows < count:
        messages: Any = consumer.consume(_SLICE, 5)
        if not messages:
            raise RuntimeError(f"only {rows} of {count} records")
        times = [message.timestamp() for message in messages]
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([message.key() for message in messages], pa.binary()),
                pa.array([message.value() for message in messages], pa.binary()),
                pa.array([message.topic() for message in messages], pa.string()),
                pa.array([message.partition() for message in messages], pa.int32()),
                pa.array([message.offset() for message in messages], pa.int64()),
                pa.array([ms for _, ms in times], pa.timestamp("ms", "UTC")),
                pa.array([kind for kind, _ in times], pa.int32()),
            ],
            names=["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"],
        )
        rows += batch.num_rows
    consumer.close()
    return rows


CLIENTS: Final = {"oncelog": with_oncelog, "confluent-kafka": with_confluent}


def measured(client: str, broker: Broker, topic: str, count: int, label: str) -> dict[str, float]:
    """Rates of one client on one topic."""
    command = [sys.executable, "-m", "bench.arrow", client, broker.bootstrap_servers, topic, str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    return {
        f"{label}, rows/s": count / result["elapsed_s"],
        f"{label}, CPU µs/row": result["cpu_s"] / count * 1e6,
        f"{label}, peak memory, MB": result["resident_bytes"] / 1e6,
    }


def _peak_bytes() -> int:
    """The most memory that this process has had resident; ``ru_maxrss`` would begin at its parent's."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def main() -> int:
    """Read one topic, and say how long it took."""
    client, servers, topic, count = sys.argv[1:]
    import oncelog.arrow.topic_reader  # noqa: F401 - imports are not what is measured

    read = CLIENTS[client]
    started, cpu = time.perf_counter(), time.process_time()
    rows = read(servers, topic, int(count))
    took = {"elapsed_s": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}
    took["resident_bytes"] = _peak_bytes()
    if rows != int(count):
        raise RuntimeError(f"{rows} rows of {count}")
    print(json.dumps(took))
    return 0


if __name__ == "__main__":
    sys.exit(main())
