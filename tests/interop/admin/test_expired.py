"""Ids that their coordinator has forgotten: expired while a late batch of theirs stands in a partition."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.admin.transactions.abort_marker import abort
from oncelog.admin.transactions.cluster_scan import Scope, scan
from oncelog.admin.transactions.explanations import explain_id
from oncelog.admin.transactions.transactional_ids import list_transactions
from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicPartition
from oncelog.base.transaction_verdicts import ReasonCode, Verdict
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused
from oncelog.testing import Broker
from tests.interop.admin.conftest import FAST
from tests.interop.admin.lab import WITHOUT_VERIFICATION, ByHand, at
from tests.interop.admin.test_hanging import committed, make_topic
from tests.peers.apache_kafka import ApacheKafka
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
EXPIRING = {
    **WITHOUT_VERIFICATION,
    "node.id": "1",
    "transactional.id.expiration.ms": "500",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
}


@contextlib.contextmanager
def running(kind: str, directory: Path) -> Iterator[str]:
    if kind == "kafka":
        with ApacheKafka(directory, properties=EXPIRING) as kafka:
            yield kafka.bootstrap_servers
    else:
        with Broker(EXPIRING) as broker:
            yield broker.bootstrap_servers


def begun(client: Client, name: str, partition: TopicPartition) -> ByHand:
    """A producer with an open transaction; on a busy machine an id may expire before it has one."""
    while True:
        producer = ByHand(client, name)
        try:
            producer.begin(partition)
        except BrokerRefused as refusal:
            if refusal.code != ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                raise
        else:
            return producer


@pytest.mark.parametrize("kind", ["oncelog", pytest.param("kafka", marks=pytest.mark.java)])
def test_an_expired_id_leaves_a_hang_that_is_found_named_and_ended(kind: str, tmp_path: Path) -> None:
    with running(kind, tmp_path) as servers, Client(servers, config=FAST) as client:
        make_topic(client, "e", 2)
        late = begun(client, "late", at("e"))
        late.end()
        late.write(at("e"), b"late")
        live = begun(client, "live", at("e", 1))
        wait_until(
            lambda: all(row.transactional_id != "late" for row in list_transactions(client).rows), "the id's expiry"
        )
        result = {
            transaction.topic_partition: transaction
            for transaction in scan(client, Scope(("e",)), min_age_ms=0).transactions
        }
        hanging = result[at("e")]
        assert (hanging.verdict, hanging.code) == (Verdict.HANGING, ReasonCode.FORGOTTEN)
        assert hanging.transactional_id == ("late" if kind == "oncelog" else None)
        assert result[at("e", 1)].verdict is Verdict.LIVE, "an id with an open transaction does not expire"
        if kind == "oncelog":
            told = explain_id(client, "late", min_age_ms=0)
            assert told.chains[0].sentences == ["Its coordinator does not know this id any more."]
            assert told.chains[1].verdict == "hanging"
        assert abort(client, hanging, min_age_ms=0).error is None
        live.end()
        assert [committed(client, at("e", index)) for index in range(2)] == [[b"v"], [b"v"]]
