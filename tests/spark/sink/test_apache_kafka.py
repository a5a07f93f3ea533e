"""The sink's way on a real Apache Kafka: ``auto`` finds no two-phase commit, the ledger writes once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from oncelog.client.blocking import Client
from oncelog.client.blocking.transactions import TransactionalProducer
from oncelog.client.machine.transaction_values import TransactionSettings
from oncelog.records.compression import Codec
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink import ledger, modes
from oncelog.spark.sink.options import Mode, parse_sink_options
from oncelog.spark.sink.two_phase.register import Attempt
from tests.peers.apache_kafka import ApacheKafka
from tests.spark.sink.queries import committed_values

pytestmark = [pytest.mark.slow, pytest.mark.java]


def test_the_ledger_on_apache_kafka(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path) as kafka:
        servers = kafka.bootstrap_servers
        options = parse_sink_options({"kafka.bootstrap.servers": servers, "topic": "out"})
        with Client(servers) as client:
            assert modes.choose(client, Mode.AUTO) is Mode.LEDGER
            with pytest.raises(SinkError, match=r"no InitProducerId 6|two\.phase\.commit"):
                modes.choose(client, Mode.TWO_PHASE)
            attempt = Attempt("query", 0, "run")
            rows = [pa.record_batch({"value": [f"row {number}" for number in range(3000)]})]
            assert ledger.write_with_ledger(options, attempt, "0", rows) == 3000
            assert ledger.write_with_ledger(options, attempt, "0", rows) == 0
            with pytest.raises(SinkError, match="were written before"):
                ledger.write_with_ledger(options, attempt, "0", rows[:1] * 2)
            dead = TransactionalProducer(client, TransactionSettings("oncelog-sink/query/0"))
            dead.initialize()
            dead.begin()
            dead.send("out", b"of an attempt that died", partition=0)
            dead.flush()
            dead.close()
            for epoch, codec in enumerate(Codec, 1):
                compressed = replace(options, producer=replace(options.producer, codec=codec))
                written = [pa.record_batch({"value": [f"{codec.name} {number}" for number in range(3000)]})]
                assert ledger.write_with_ledger(compressed, Attempt("query", epoch, "run"), "0", written) == 3000
        everything = [f"row {number}" for number in range(3000)]
        everything += [f"{codec.name} {number}" for codec in Codec for number in range(3000)]
        assert committed_values(servers, "out") == sorted(value.encode() for value in everything)
