"""Tables to audit: loaded by oncelog's own code, or with the files and snapshot entries of Kafka Connect's sink."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from oncelog.cli.main import invoke
from oncelog.spark.table_audit.audit import TableAudit, Topics, audit_table
from oncelog.spark.table_audit.delta_history import open_delta
from oncelog.spark.table_audit.iceberg_history import IcebergHistory, open_iceberg
from oncelog.spark.table_audit.model import History
from tests.unit.spark.targets.tables import Lake

CONTROL = "control-iceberg"
GROUP = "connect-iceberg-sink"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("_kafka_metadata_topic", pa.string()),
        ("_kafka_metadata_partition", pa.int32()),
        ("_kafka_metadata_offset", pa.int64()),
    ]
)


def lake(kind: str, place: Path) -> Lake:
    """A table in a directory, which no server sees."""
    return Lake(f"{kind}:{place}", None, {}, None, "")  # type: ignore[arg-type]


def history(kind: str, place: Path) -> History:
    if kind == "iceberg":
        return IcebergHistory(*open_iceberg(str(place), None, {}))
    return open_delta(str(place), {}, None)


def audited(table: History, *, rows: bool = False, topics: Topics | None = None, beside: Any = None) -> TableAudit:
    return audit_table(
        table,
        read_all_rows=rows,
        topics=topics or Topics(),
        quarantine=beside,
        report_progress=lambda step, done, total: None,
    )


def kinds(result: TableAudit) -> list[str]:
    return [finding.kind for finding in result.findings.worst_first()]


class SinkTable:
    """An Iceberg table as Kafka Connect's sink leaves it (1.11.0: ``Coordinator.commitToTable``)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.catalog = SqlCatalog("sink", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}/warehouse")
        self.catalog.create_namespace("shop")
        self.table: Table = self.catalog.create_table("shop.orders", schema=SCHEMA)

    def file(self, *offsets: int, topic: str = "orders", partition: int = 0) -> str:
        """A data file with a row for each offset."""
        rows = [{"id": offset, **_metadata(topic, partition, offset)} for offset in offsets]
        path = self.root / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
        return f"file://{path}"

    def commit(self, control: int, *files: str, commit_id: str = "", valid_through: str = "", **entries: str) -> str:
        """A snapshot of the sink's coordinator; the id of it."""
        summary = {
            f"kafka.connect.offsets.{CONTROL}.{GROUP}": json.dumps({"0": control}),
            "kafka.connect.commit-id": commit_id or str(uuid.uuid4()),
            "kafka.connect.task-id": "iceberg-sink-0",
            **({"kafka.connect.valid-through-ts": valid_through} if valid_through else {}),
            **entries,
        }
        self.table.refresh()
        self.table.add_files(list(files), snapshot_properties=summary, check_duplicate_files=False)
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return str(snapshot.snapshot_id)

    def history(self) -> IcebergHistory:
        self.table.refresh()
        return IcebergHistory("iceberg:shop.orders", self.table)

    def run(self, *options: str) -> int:
        """``oncelog audit`` of this table; its exit code."""
        place = [f"uri=sqlite:///{self.root}/catalog.db", f"warehouse=file://{self.root}/warehouse", "type=sql"]
        storage = [part for option in place for part in ("--storage-option", option)]
        return invoke(["audit", "--iceberg", "shop.orders", "--catalog", "sink", *storage, *options])


def _metadata(topic: str, partition: int, offset: int) -> dict[str, Any]:
    values: Iterable[Any] = (topic, partition, offset)
    return dict(zip(SCHEMA.names[1:], values, strict=True))
