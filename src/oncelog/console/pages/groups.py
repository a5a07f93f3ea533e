"""Groups: all of them; one with what it has committed, what it can read, and who holds it; and moving its offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from oncelog.admin.groups import LagRow, ResetRow, ResetTo, describe_group, group_lag, list_groups
from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.cluster_scan import Scope, scan
from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of
from oncelog.admin.transactions.readable_records import count_records
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.admission.gate import Permit
from oncelog.console.changes.audited_changes import Changes, partition_of, reset_plan
from oncelog.console.page import Asked
from oncelog.console.query import BadQuery, Query
from oncelog.console.rendering import one_page

TARGETS: Final = ("earliest", "latest", "current", "offset", "timestamp_ms", "shift")
LONGEST_PLAN: Final = 200_000
MOST_MEMBERS: Final = 100
MOST_ASSIGNED: Final = 20
"""Partitions of a member that a page names; of the others it says how many they are."""


def read_all(client: Client, asked: Asked) -> Mapping[str, Any]:
    """Groups by name, those whose name contains the filter."""
    query = asked.query
    wanted, state = query.text("filter"), query.text("state")
    rows = [
        list_group
        for list_group in list_groups(client)
        if wanted.lower() in list_group.group.lower() and state.lower() in ("", list_group.state.lower())
    ]
    return {"groups": one_page(rows, query.number("page", 1, 1)), "filter": {"filter": wanted, "state": state}}


def read_one(client: Client, asked: Asked) -> Mapping[str, Any]:
    """One group: members, and for each partition the offsets that matter, all asked now."""
    description = describe_group(client, asked.query.needed("name"))
    lags = group_lag(client, description)
    there = [partition_of(lag.topic, lag.partition) for lag in lags if lag.log_end is not None]
    bounds, unanswered = bounds_of(client, there)
    page = one_page(lags, asked.query.number("page", 1, 1))
    page["rows"], more_unanswered = rows_of(client, page["rows"], bounds)
    members = description.members[:MOST_MEMBERS]
    return {
        "group": replace(
            description, members=[replace(member, partitions=member.partitions[:MOST_ASSIGNED]) for member in members]
        ),
        "members": len(description.members),
        "assigned": [len(member.partitions) for member in members],
        "partitions": page,
        "lag": sum(one.lag or 0 for one in lags),
        "readable": sum(readable(lag, bounds.get(partition_of(lag.topic, lag.partition))) or 0 for lag in lags),
        "unanswered": [str(one) for one in (*unanswered, *more_unanswered)],
    }


def position_of(one: LagRow) -> int | None:
    """The offset a group goes on from: what it has committed, or the first there is where that has been removed."""
    return None if one.committed is None else max(one.committed, one.log_start or 0)


def readable(one: LagRow, bound: Bounds | None) -> int | None:
    """The offsets that a reader of committed records has left; None where nothing is committed, or not answered."""
    position = position_of(one)
    return None if bound is None or position is None else max(0, bound.last_stable_offset - position)


def rows_of(
    client: Client, lags: Sequence[LagRow], bounds: Mapping[TopicPartition, Bounds]
) -> tuple[list[dict[str, Any]], list[Unanswered]]:
    """Partitions of a page. ``lag`` counts offsets up to the end, ``readable`` those up to where a reader of committed
    records gets, ``records`` what it gets there; None where nothing is committed, or they are too many to count.
    ``held_by`` is the transaction at the last stable offset."""
    places = [partition_of(lag.topic, lag.partition) for lag in lags]
    held = [place for place in places if place in bounds and bounds[place].held]
    scanned = scan(client, Scope(partitions=tuple(held))) if held else None
    holders = {transaction.where: transaction for transaction in reversed(scanned.transactions if scanned else [])}
    positions = {
        where: position for one, where in zip(lags, places, strict=True) if (position := position_of(one)) is not None
    }
    records = count_records(client, positions, {where: one.last_stable_offset for where, one in bounds.items()})
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "committed": one.committed,
            "log_start": one.log_start,
            "log_end": one.log_end,
            "last_stable_offset": bounds[where].last_stable_offset if where in bounds else None,
            "lag": one.lag,
            "readable": readable(one, bounds.get(where)),
            "records": records.get(where),
            "client_id": one.client_id,
            "host": one.host,
            "held_by": holders[where].as_row() if where in holders else None,
        }
        for one, where in zip(lags, places, strict=True)
    ]
    return rows, scanned.unanswered if scanned else []


def read_plan(client: Client, asked: Asked) -> Mapping[str, Any]:
    """The plan of a reset; without a target only the form."""
    query = asked.query
    group, topic = query.needed("name"), query.text("topic")
    to = query.text("to")
    shown = {"group": group, "topic": topic, "to": to, "value": query.text("value"), "targets": TARGETS}
    if not to:
        return shown | {"plan": None, "state": describe_group(client, group).state}
    rows = reset_plan(client, group, target_of(query), topic)
    return shown | {"plan": rows, "state": describe_group(client, group).state, "sent": plan_text(rows)}


def target_of(query: Query) -> ResetTo:
    to = query.choice("to", TARGETS)
    if to in ("earliest", "latest", "current"):
        return ResetTo(earliest=to == "earliest", latest=to == "latest", current=to == "current")
    value = query.optional_number("value", -(2**62), 2**62)
    if value is None or (value < 0 and to != "shift"):
        raise BadQuery(f"to={to} needs value=…, a whole number")
    if to == "offset":
        return ResetTo(offset=value)
    return ResetTo(timestamp_ms=value) if to == "timestamp_ms" else ResetTo(shift=value)


def plan_text(rows: list[ResetRow]) -> str:
    return json.dumps([[row.topic, row.partition, row.current, row.target] for row in rows], separators=(",", ":"))


def plan_of(text: str) -> list[ResetRow]:
    """The plan that a form carried. Raises BadQuery."""
    try:
        rows = [ResetRow(topic, partition, current, target) for topic, partition, current, target in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        raise BadQuery("the form has no plan") from None
    for row in rows:
        numbers = (row.partition, row.target, 0 if row.current is None else row.current)
        if not isinstance(row.topic, str) or not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
            raise BadQuery("the form has no plan")
    return rows


def act_reset(client: Client, asked: Asked, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = asked.query
    group = query.needed("name")
    plan = changes.reset_offsets(client, permit, group, plan_of(query.long("plan", LONGEST_PLAN)), query.text("typed"))
    moved = [f"{one.topic}-{one.partition}: {one.current} → {one.target}" for one in plan]
    return {
        "what": group,
        "error": None,
        "warning": None,
        "said": [f"{len(plan)} offsets are committed.", *moved[:100]],
    }
