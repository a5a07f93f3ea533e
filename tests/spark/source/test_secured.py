"""A query against an Apache Kafka that wants TLS and a password: ``kafka.*`` options, as the connector takes them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking import Client
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from tests.interop.client.secured import PASSWORD, USER, SecuredKafka, make_certificates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.java]


def test_a_query_over_tls_and_scram(spark: SparkSession, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    with SecuredKafka(tmp_path) as kafka:
        kafka.add_user()
        with Client(kafka.bootstrap_servers) as client:
            client.topic("secret", create=True)
            now_ms = time.time_ns() // 1_000_000  # retention removes a record of 1970, 30 s after the broker's start
            record = Record(-1, now_ms, None, b"v")
            client.produce(TopicPartition(TopicName("secret"), 0), build_batch([record] * 3))
        escaped = PASSWORD.replace('"', r"\"")
        module = (
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{escaped}";'
        )
        secured = {
            "kafka.bootstrap.servers": kafka.address("SASL_SSL"),
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": module,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(tmp_path / "ca.pem"),
            "subscribe": "secret",
        }
        read = spark.read.format("oncelog")
        assert [bytes(row.value) for row in read.options(**secured).load().collect()] == [b"v"] * 3
        wrong = {**secured, "kafka.sasl.jaas.config": module.replace(USER, "mallory")}
        with pytest.raises(Exception, match=r"(?i)authentication"):
            read.options(**wrong).load().count()
