"""A log of Kafka 0.7 into a topic: `oncelog log import`, beside a program that does the same with librdkafka.

The other is what one would write by hand: entries cut with struct and checked with zlib, each message given to
confluent-kafka's transactional producer, the position committed as a group's offset in the transaction. Both write to
one `oncelog serve` in transactions of 32 MiB, from files in the page cache. Processor time is the importing process's
alone.
"""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Final

from tests.old_logs import message, write_log
from tests.peers.oncelog_serve import OncelogServe

from bench.options import Options, progress
from bench.report import Comparison, Figures, paired

MESSAGES: Final = 1_000_000
MESSAGE_BYTES: Final = 100
TRANSACTION_BYTES: Final = 32 << 20
_ONCELOG: Final = str(Path(sys.executable).with_name("oncelog"))


def import_old_logs(options: Options) -> Comparison:
    """A 0.7 log into a topic, exactly once: `oncelog log import` beside librdkafka in Python."""
    count = options.scaled(MESSAGES)
    comparison = Comparison(
        "0.7 log of 100-byte messages into a topic", "oncelog log import", "confluent-kafka by hand"
    )
    with tempfile.TemporaryDirectory(prefix="old-logs-") as temporary, OncelogServe() as broker:
        directory = Path(temporary)
        write_log(directory / "log-0", [message(os.urandom(MESSAGE_BYTES)) for _ in range(count)])
        servers = broker.bootstrap_servers

        def ours(number: int) -> Figures:
            topic = f"ours-{number}"
            command = [_ONCELOG, "log", "import", str(directory), "--to", topic, "--bootstrap-servers", servers]
            return _measured(command, count)

        def theirs(number: int) -> Figures:
            topic = f"theirs-{number}"
            subprocess.run(
                [_ONCELOG, "topic", "create", topic, "-p", "1", "-b", servers], check=True, capture_output=True
            )
            command = [sys.executable, "-m", "bench.old_logs", str(directory / "log-0"), topic, servers]
            return _measured(command, count)

        return paired(comparison, (ours, theirs), options.repeat, progress)


def _measured(command: list[str], count: int) -> Figures:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"messages/s": count / seconds, "CPU s a million": cpu / count * 1e6}


def by_hand(directory: Path, topic: str, servers: str) -> None:
    """Import a partition of uncompressed entries of magic 1 with confluent-kafka."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    group = Consumer({"bootstrap.servers": servers, "group.id": f"by-hand-{topic}"})
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"by-hand-{topic}", "linger.ms": 5})
    producer.init_transactions()
    head = struct.Struct(">iBBI")
    for path in sorted(directory.glob("*.kafka")):
        data = path.read_bytes()
        at, since = 0, 0
        producer.begin_transaction()
        while at < len(data):
            length, _magic, _attributes, crc = head.unpack_from(data, at)
            payload = data[at + 10 : at + 4 + length]
            if zlib.crc32(payload) != crc:
                raise ValueError(f"{path}: wrong checksum at {at}")
            while True:
                try:
                    producer.produce(topic, payload, partition=0)
                    break
                except BufferError:
                    producer.poll(0.1)
            at += 4 + length
            if at - since >= TRANSACTION_BYTES or at == len(data):
                offset = TopicPartition(topic, 0, int(path.stem) + at)
                producer.send_offsets_to_transaction([offset], group.consumer_group_metadata())
                producer.commit_transaction()
                since = at
                if at < len(data):
                    producer.begin_transaction()
    group.close()


if __name__ == "__main__":
    by_hand(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
