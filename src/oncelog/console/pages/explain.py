"""The page of ``admin.explain``: why a group, topic, partition, producer or transactional id makes no progress."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from oncelog.admin.explain.findings import Report
from oncelog.admin.explain.targets import explain_group, explain_producer, explain_topic, explain_txn
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.page import PageRequest
from oncelog.console.query import INT64_MAX, BadQuery, Query
from oncelog.console.rendering import address

_BROKER: Final = re.compile(r"\bbroker \d+")
KINDS: Final = ("group", "topic", "partition", "producer", "txn")


def read(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The report on a subject; without a name, the form."""
    query = page_request.query
    kind, name = query.choice("kind", KINDS), query.text("name").strip()
    partition = query.optional_number("partition", 0, 2**31 - 1)
    subject = {"kind": kind, "name": name, "partition": partition}
    if not name:
        return {"asked": subject, "report": None, "kinds": KINDS}
    report = _REPORTS[kind](client, query, page_request.settings.command_options)
    return {
        "asked": subject,
        "report": report,
        "is_stuck": report.is_stuck,
        "kinds": KINDS,
        "links": links_of(report, name if kind == "group" else None),
    }


def links_of(report: Report, group: str | None) -> dict[str, str]:
    """Addresses of what the sentences of a report name: partitions, groups, transactional ids, producers, brokers."""
    links = {name: address("/groups/one", name=name) for finding in report.findings for name in finding.groups}
    links |= {} if group is None else {repr(group): address("/groups/one", name=group)}
    partitions = {partition for finding in report.findings for partition in finding.partitions}
    partitions |= {TopicPartition(TopicName(row.topic), row.partition) for row in report.transactions}
    for topic, partition in partitions:
        links[f"{topic}-{partition}"] = address("/explain", kind="partition", name=topic, partition=partition)
    for row in report.transactions:
        links[f"producer id {row.producer_id}"] = address("/explain", kind="producer", name=row.producer_id)
        if row.transactional_id:
            links[repr(row.transactional_id)] = address("/transactions/ids", id=row.transactional_id)
    texts = " ".join(sentence for finding in report.findings for sentence in finding.sentences)
    return links | {name: address("/brokers/one", id=name.split()[1]) for name in _BROKER.findall(texts)}


def _producer(client: Client, query: Query, options: str) -> Report:
    producer_id = query.optional_number("name", 0, INT64_MAX)
    if producer_id is None:
        raise BadQuery("name must be a producer id, a whole number")
    return explain_producer(client, producer_id, options=options)


def _partition(client: Client, query: Query, options: str) -> Report:
    index = query.optional_number("partition", 0, 2**31 - 1)
    if index is None:
        raise BadQuery("a partition needs its topic and partition=…, its number")
    return explain_topic(client, query.text("name").strip(), index, options=options)


_REPORTS: Final[dict[str, Callable[[Client, Query, str], Report]]] = {
    "group": lambda client, query, options: explain_group(client, query.text("name"), options=options),
    "topic": lambda client, query, options: explain_topic(client, query.text("name").strip(), options=options),
    "partition": _partition,
    "producer": _producer,
    "txn": lambda client, query, options: explain_txn(client, query.text("name"), options=options),
}
