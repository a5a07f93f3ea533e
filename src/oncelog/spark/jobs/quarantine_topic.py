"""A quarantine topic: bad rows with their bytes, where they were and why, exactly once beside the table's commit.

The rule: the rows and the id of their rename journal (metadata of an offset, committed for a group of the table's own)
are in one transaction. A process that finds the journal again fences the writer before it, reads that metadata with
require_stable, and sends the rows only if it names another journal. So the rows are in the topic once, whenever a
process died.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.offsets import committed_offsets
from oncelog.client.blocking.transactions import TransactionalProducer
from oncelog.client.machine.offsets import Committed, GroupMetadata
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.spark.source.options import SourceOptions
from oncelog.spark.source.plan.offset_planner import open_client
from oncelog.spark.table.directory import QuarantineSender

PREFIX: Final = "oncelog-load"
HEADER: Final = "oncelog."
"""Before ``topic``, ``partition``, ``offset`` and ``reason`` in the headers of a quarantined record."""


def quarantine_sender(options: SourceOptions, table: Path) -> QuarantineSender:
    """The function by which a table sends the bad rows of a rename journal to the topic that the journal names."""

    def send_quarantined(extra: dict[str, Any]) -> None:
        described = json.loads((table / "_oncelog" / "table.json").read_text(encoding="utf-8"))
        identity = f"{PREFIX}/{described['id']}"
        noted = TopicPartition(TopicName(extra["topic"]), 0)
        with (
            open_client(options) as client,
            TransactionalProducer(client, TransactionSettings(identity), create_topics=True) as producer,
        ):
            producer.initialize()
            client.topic(extra["topic"], create=True)
            done = committed_offsets(client, identity, [noted], require_stable=True).get(noted)
            if done is not None and done.metadata == extra["id"]:
                return
            with producer.transaction(), pq.ParquetFile(table / extra["rows"]) as rows:
                for batch in rows.iter_batches():
                    send_bad_rows(producer, extra["topic"], batch)
                producer.send_offsets({noted: Committed(0, -1, extra["id"])}, GroupMetadata(identity))

    return send_quarantined


def send_bad_rows(producer: TransactionalProducer, topic: str, rows: pa.RecordBatch) -> None:
    """Send each bad row as the record it was; after its own headers come its place in the log and the reason."""
    for row in rows.to_pylist():
        own = [(one["key"], one["value"]) for one in row.get("headers") or ()]
        why = [(HEADER + name, str(row[name]).encode()) for name in ("topic", "partition", "offset", "reason")]
        producer.send(
            topic,
            row["value"],
            key=row["key"],
            headers=(*own, *why),
            timestamp_ms=int(row["timestamp"].timestamp() * 1000),
        )
