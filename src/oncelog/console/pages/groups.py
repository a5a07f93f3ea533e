"""Group pages: the list, one group with its lag and the transactions that block it, and the reset of its offsets."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oncelog.admin.groups import (
    GROUP_TYPES,
    GroupRow,
    LagRow,
    MemberRow,
    ResetRow,
    ResetTo,
    describe_group,
    group_lag,
    list_groups,
)
from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.cluster_scan import Scope, scan
from oncelog.admin.transactions.partition_offsets import Bounds, bounds_of
from oncelog.admin.transactions.readable_records import count_records
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.client import Client
from oncelog.console.admission.gate import Permit
from oncelog.console.changes.audited_changes import Changes, partition_of, reset_plan
from oncelog.console.cluster.diagnoses import PEEK_S
from oncelog.console.metrics.lag_trends import trend_of
from oncelog.console.page import PageRequest
from oncelog.console.pages import share_groups
from oncelog.console.query import BadQuery, Query
from oncelog.console.rendering import one_page
from oncelog.plotting.lines import Line, line_plot, sparkline

if TYPE_CHECKING:
    from oncelog.admin.explain.cluster_report import GroupSummary
    from oncelog.console.metrics.sampler import Sampler

SORTS: Final = ("name", "readable", "lag", "members", "rate")
TARGETS: Final = ("earliest", "latest", "current", "offset", "timestamp_ms", "shift")
MAX_PLAN_LENGTH: Final = 200_000
MAX_MEMBERS: Final = 100
FIRST_WAIT_S: Final = 0.05  # The first page is there at once; it gets the lags a second later.
SPARK_MS: Final = 900_000
HISTORY_MS: Final = 3_600_000
MAX_ASSIGNED: Final = 20  # Partitions named per member; the others are counted.


def read_all(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    query = page_request.query
    name_filter, state, group_type = query.text("filter"), query.text("state"), query.text("type")
    rows = [
        row
        for row in list_groups(client)
        if name_filter.lower() in row.group.lower()
        and state.lower() in ("", row.state.lower())
        and group_type.lower() in ("", row.group_type.lower())
    ]
    sort = query.choice("sort", SORTS)
    diagnosis = (
        None
        if page_request.diagnoses is None
        else page_request.diagnoses.peek(PEEK_S if page_request.as_json else FIRST_WAIT_S)
    )
    lags = {} if diagnosis is None else {group.group: group for group in diagnosis.report.groups}
    rates = {} if diagnosis is None else diagnosis.rates
    listed = [_listed(row, lags.get(row.group), rates.get(row.group)) for row in rows]
    if sort != "name":
        # Unknown is not 0: it comes first.
        listed.sort(key=lambda row: (row[sort] is not None, -(row[sort] or 0)))
    groups = one_page(listed, query.number("page", 1, 1))
    _add_trends(groups["rows"], page_request.sampler)
    return {
        "groups": groups,
        "filter": {"filter": name_filter, "state": state, "type": group_type, "sort": sort},
        "types": GROUP_TYPES,
        "sorts": SORTS,
        "age_ms": None if diagnosis is None else int(diagnosis.age_s * 1000),
        "renew_s": 1 if diagnosis is None else 5,
    }


def _listed(row: GroupRow, lags: GroupSummary | None, rate: float | None) -> dict[str, Any]:
    """A group with its lags from the last diagnosis; None if they are unknown."""
    columns: dict[str, Any] = {name: getattr(row, name) for name in row.__slots__}
    if lags is None or not lags.is_counted:
        return columns | {"members": None, "readable": None, "lag": None, "unknown": 0, "rate": None}
    return columns | {
        "members": lags.members,
        "readable": lags.readable or (None if lags.unknown else 0),
        "lag": lags.lag or (None if lags.unknown else 0),
        "unknown": lags.unknown,
        "rate": rate,
    }


def _add_trends(rows: list[dict[str, Any]], sampler: Sampler | None) -> None:
    # For each row, how the lag of its group has changed over the last minutes.
    names = {row["group"] for row in rows}
    since_ms = int(time.time() * 1000) - SPARK_MS
    times, series = ([], {}) if sampler is None else sampler.groups.since(since_ms, lambda key: key[1] in names)
    for row in rows:
        lags = series.get(("lag", row["group"]), [math.nan] * len(times))
        row["trend"] = trend_of(times, lags)
        row["spark"] = sparkline(times, lags)


def history_of(sampler: Sampler | None, group: str) -> dict[str, Any]:
    if sampler is None:
        return {"trend": None, "plot": None}
    now_ms = int(time.time() * 1000)
    times, series = sampler.groups.since(now_ms - HISTORY_MS, lambda key: key[1] == group)
    to_end = series.get(("lag", group), [])
    if not any(map(math.isfinite, to_end)):
        return {"trend": None, "plot": None}
    lines = [Line("lag to the end", to_end), Line("lag, read_committed", series.get(("readable", group), []))]
    plot = line_plot("lag", "Lag over time", times, lines, (max(times[0], now_ms - HISTORY_MS), now_ms))
    return {"trend": trend_of(times, to_end), "plot": plot}


def read_one(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """One group: its members and, for each partition, current offsets. ``share_groups`` reads a share group."""
    description = describe_group(client, page_request.query.needed("name"))
    if description.is_share:
        share = share_groups.read(client, page_request, description)
        return share | history_of(page_request.sampler, description.group)
    lags = group_lag(client, description)
    partitions = [partition_of(lag.topic, lag.partition) for lag in lags if lag.log_end is not None]
    bounds, unanswered = bounds_of(client, partitions)
    page = one_page(lags, page_request.query.number("page", 1, 1))
    page["rows"], more_unanswered = rows_of(client, page["rows"], bounds)
    members = description.members[:MAX_MEMBERS]
    to_end = [*map(lag_to_end, lags)]
    return {
        "group": replace(description, members=[_shortened(member) for member in members]),
        "shows_members": description.has_members_shown,
        "members": len(description.members),
        "assigned": [len(member.partitions) for member in members],
        "moves": [moves_of(member) for member in members],
        "handovers": len(description.handovers),
        "partitions": page,
        "lag": total(to_end),
        "readable": total(readable(lag, bounds.get(partition_of(lag.topic, lag.partition))) for lag in lags),
        "unknown": to_end.count(None),
        "unanswered": [str(item) for item in (*unanswered, *more_unanswered)],
        **history_of(page_request.sampler, description.group),
    }


def _shortened(member: MemberRow) -> MemberRow:
    return replace(
        member,
        partitions=member.partitions[:MAX_ASSIGNED],
        target=None if member.target is None else member.target[:MAX_ASSIGNED],
        topics=member.topics[:MAX_ASSIGNED],
    )


def moves_of(member: MemberRow) -> dict[str, Any]:
    """The first partitions that a member must give up and waits for, with the count of each."""
    return {
        name: {"partitions": partitions[:MAX_ASSIGNED], "count": len(partitions)}
        for name, partitions in (("to_give_up", member.to_give_up), ("awaited", member.awaited))
    }


def total(lags: Iterable[int | None]) -> int | None:
    """The sum of those that are known; None rather than 0 if some are not."""
    listed = [*lags]
    least = sum(lag for lag in listed if lag is not None)
    return None if not least and None in listed else least


def lag_to_end(lag_row: LagRow) -> int | None:
    """The offsets up to the end; None without a commit in a partition that has records."""
    return 0 if lag_row.lag is None and _is_empty(lag_row) else lag_row.lag


def _is_empty(lag_row: LagRow) -> bool:
    return lag_row.log_end is not None and lag_row.log_start == lag_row.log_end


def position_of(lag_row: LagRow) -> int | None:
    """The offset at which a group continues: its commit, or the start of the log if that is later or all there is."""
    if lag_row.committed is None:
        return lag_row.log_start if _is_empty(lag_row) else None
    return max(lag_row.committed, lag_row.log_start or 0)


def readable(lag_row: LagRow, bound: Bounds | None) -> int | None:
    """The offsets left for a read_committed consumer; None without a commit or an answer."""
    position = position_of(lag_row)
    return None if bound is None or position is None else max(0, bound.last_stable_offset - position)


def rows_of(
    client: Client, lags: Sequence[LagRow], bounds: Mapping[TopicPartition, Bounds]
) -> tuple[list[dict[str, Any]], list[Unanswered]]:
    """The partitions of a page.

    ``lag`` counts offsets up to the end, ``readable`` those up to the last stable offset, ``records`` the visible
    records among these; None without a commit, or if there are too many to count. ``held_by`` is the transaction at the
    last stable offset.
    """
    places = [partition_of(lag.topic, lag.partition) for lag in lags]
    held = [place for place in places if place in bounds and bounds[place].held]
    scanned = scan(client, Scope(partitions=tuple(held))) if held else None
    holders = {
        transaction.topic_partition: transaction for transaction in reversed(scanned.transactions if scanned else [])
    }
    positions = {
        place: position
        for lag_row, place in zip(lags, places, strict=True)
        if (position := position_of(lag_row)) is not None
    }
    records = count_records(client, positions, {place: lag_row.last_stable_offset for place, lag_row in bounds.items()})
    rows = [
        {
            "topic": lag_row.topic,
            "partition": lag_row.partition,
            "committed": lag_row.committed,
            "log_start": lag_row.log_start,
            "log_end": lag_row.log_end,
            "last_stable_offset": bounds[place].last_stable_offset if place in bounds else None,
            "lag": lag_row.lag,
            "readable": readable(lag_row, bounds.get(place)),
            "records": records.get(place),
            "client_id": lag_row.client_id,
            "host": lag_row.host,
            "held_by": holders[place].as_row() if place in holders else None,
        }
        for lag_row, place in zip(lags, places, strict=True)
    ]
    return rows, scanned.unanswered if scanned else []


def read_plan(client: Client, page_request: PageRequest) -> Mapping[str, Any]:
    """The plan of a reset; without a target, the form."""
    query = page_request.query
    group, topic = query.needed("name"), query.text("topic")
    to = query.text("to")
    shown: dict[str, Any] = {"group": group, "topic": topic, "to": to, "value": query.text("value"), "targets": TARGETS}
    description = describe_group(client, group)
    shown |= {"state": description.state, "is_share": description.is_share, "plan": None, "wrong": None}
    if not to:
        return shown
    try:
        target = target_of(query)
    except BadQuery as error:
        return shown | {"wrong": str(error), "refused_with": error.status}
    rows = reset_plan(client, group, target, topic)
    return shown | {"plan": rows, "sent": plan_text(rows)}


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
    """The plan in a form. Raises BadQuery."""
    try:
        rows = [ResetRow(topic, partition, current, target) for topic, partition, current, target in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        raise BadQuery("the form has no valid plan: show the plan again") from None
    for row in rows:
        numbers = (row.partition, row.target, 0 if row.current is None else row.current)
        if not isinstance(row.topic, str) or not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
            raise BadQuery("the form has no valid plan: show the plan again")
    return rows


def act_reset(client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
    query = page_request.query
    group = query.needed("name")
    plan = changes.reset_offsets(
        client, permit, group, plan_of(query.long("plan", MAX_PLAN_LENGTH)), query.text("typed")
    )
    moved = [f"{row.topic}-{row.partition}: {row.current} → {row.target}" for row in plan]
    return {
        "what": group,
        "error": None,
        "warning": None,
        "said": [f"{len(plan)} offsets moved.", *moved[:100]],
    }
