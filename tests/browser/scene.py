"""A cluster as somebody on call finds it: records, groups that stand, transactions of every verdict, hostile names."""

from __future__ import annotations

import json
import time
from typing import Final

from oncelog.admin.configs import ResourceType as ConfigType
from oncelog.admin.configs import alter_configs
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, ClientConfig, Committed, GroupConsumer, GroupSettings
from oncelog.client.blocking.producer import Producer
from oncelog.client.programs.group import commit_offsets
from oncelog.records.builder import build_batch
from oncelog.records.record import Record
from tests.interop.admin.lab import ByHand, at
from tests.interop.admin.share_members import ACCEPT, REJECT, RELEASE, ShareMember

ORDERS: Final = "shop.orders"
PAYMENTS: Final = "shop.payments"
SETTLEMENTS: Final = "shop.settlements"
EMPTY: Final = "shop.returns"
REFUNDS: Final = "shop.refunds"
HUNG: Final = "order-service-3"
LIVE: Final = "payment-service-1"
TWO_PHASE: Final = "settlement-job-7"
BILLING: Final = "order-billing"
ANALYTICS: Final = "analytics"
WORKERS: Final = "refund-workers"
"""A share group with a record that came back, one that was rejected, and records that its member holds."""
LONG_AGO_MS: Final = 3_600_000
BULK: Final = 200
"""Records of ORDERS-1 and ORDERS-2."""


def plant(servers: str, *, two_phase: bool = True) -> None:
    """Make all of it, on a cluster that does not verify late batches."""
    config = ClientConfig(retry_backoff_ms=20, retry_timeout_ms=60_000, unknown_topic_grace_ms=10_000)
    with Client(servers, config=config) as client:
        for name, partitions in ((ORDERS, 3), (PAYMENTS, 2), (SETTLEMENTS, 1), (EMPTY, 1), (REFUNDS, 1)):
            create_topic(client, NewTopic(name, partitions=partitions, replication_factor=1))
            client.topic(name)
        _orders(client)
        _payments(client)
        if two_phase:
            ByHand(client, TWO_PHASE, two_phase=True).begin(at(SETTLEMENTS))
        _refunds(client)
        commit_offsets(client, BILLING, {at(ORDERS, 0): Committed(3), at(ORDERS, 1): Committed(BULK)})
        commit_offsets(client, ANALYTICS, {at(ORDERS, 1): Committed(BULK - 50), at(PAYMENTS, 0): Committed(0)})


def _refunds(client: Client) -> None:
    """A share group of REFUNDS, whose member stays until its session ends."""
    alter_configs(client, ConfigType.GROUP, WORKERS, change={"share.auto.offset.reset": "earliest"})
    client.produce(at(REFUNDS), build_batch([Record(i, now_ms(), None, b"refund") for i in range(12)]))
    member = ShareMember(client, WORKERS, REFUNDS)
    member.join()
    member.acquires()
    member.acknowledge(0, 3, ACCEPT)
    member.acknowledge(4, 4, REJECT)
    member.acknowledge(5, 5, RELEASE)


def _orders(client: Client) -> None:
    """Partition 0: committed, aborted, a transaction that hangs, and committed ones behind it. 1 and 2: plain ones."""
    with Producer(client) as producer:
        for number in range(2 * BULK):
            send_order(producer, number)
    done = ByHand(client, "order-service-1")
    done.begin(at(ORDERS))
    done.end()
    done.restart()
    late = ByHand(client, HUNG)
    done.begin(at(ORDERS))
    done.end(commit=False)
    done.restart()
    late.begin(at(ORDERS, 2))
    late.end()
    late.write(at(ORDERS), timestamp_ms=now_ms() - LONG_AGO_MS)
    for _ in range(3):
        done.begin(at(ORDERS))
        done.end()
        done.restart()


def _payments(client: Client) -> None:
    """Partition 0: one that is live. Partition 1: one whose batch came late a moment ago."""
    live = ByHand(client, LIVE, timeout_ms=900_000)
    live.begin(at(PAYMENTS))
    young = ByHand(client, "payment-service-2")
    young.begin(at(PAYMENTS, 1))
    young.end()
    young.write(at(PAYMENTS, 1))


def send_order(producer: Producer, number: int, topic: str = ORDERS) -> None:
    """An order in JSON, with headers, to partition 1 or 2."""
    value = {"order": number, "customer": f"c-{number % 17}", "total": round(number * 1.37, 2), "items": [1, 2, 3]}
    producer.send(
        topic,
        json.dumps(value).encode(),
        key=b"order-%d" % number,
        partition=1 + number % 2,
        headers=(("trace", b"%032x" % number), ("source", b"web")),
    )


def member(client: Client, group: str = "dashboards", topic: str = ORDERS) -> GroupConsumer:
    """A consumer that has joined, and stays a member without being polled."""
    consumer = GroupConsumer(client, group, [topic], settings=GroupSettings(session_timeout_ms=1_800_000))
    while not consumer.has_joined:
        consumer.poll(100)
    return consumer


def now_ms() -> int:
    """The time."""
    return int(time.time() * 1000)
