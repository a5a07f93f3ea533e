"""Finds transactional ids that are not used again: counted by their pattern, with times and expiry."""

# Applications that make up a new id at each start or checkpoint (a random suffix, a counter) leave one behind each
# time. Each stays in its coordinator's memory and log until transactional.id.expiration.ms after its last use. Ids of
# an application that has been stopped are idle, too, but were last used at the same time: only ids whose last uses are
# spread over time count.

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from oncelog.admin.configs import ResourceType, describe_configs
from oncelog.admin.transactions.broker_requests import Unanswered
from oncelog.admin.transactions.id_pages import IdAnswers, read_states
from oncelog.admin.transactions.transactional_ids import ListFilter, describe_transactions
from oncelog.base.errors import PeerError
from oncelog.base.units import HOUR_MS, MINUTE_MS
from oncelog.client.errors import ClientError
from oncelog.client.programs import Cluster, Program, operation
from oncelog.wire.reader import CompactReader

# More than a day: the ids of a daily job are used again.
IDLE_MS: Final = 25 * HOUR_MS
LEAST_IDS: Final = 100
LEAST_SPREAD_MS: Final = 10 * MINUTE_MS
SAMPLE: Final = 50
MOST_PATTERNS: Final = 10_000
EXPIRATION: Final = "transactional.id.expiration.ms"
# Not those in state Empty, whose age a list does not tell: they may just have been initialised.
_AT_REST: Final = ("CompleteCommit", "CompleteAbort")
_VARIABLE: Final = re.compile(
    r"(?P<uuid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"
    r"|(?P<random>(?<![0-9A-Za-z])(?=[0-9A-Za-z]*[0-9][A-Za-z])[0-9A-Za-z]{6,})"
    r"|(?P<number>[0-9]+)"
)


@dataclass(frozen=True, slots=True)
class UnusedIds:
    """Idle ids with the same pattern. Times are of the first and the last of their last transactions, of a sample."""

    pattern: str
    count: int
    example: str
    oldest_ms: int
    newest_ms: int
    expiration_ms: int | None


@dataclass(frozen=True, slots=True)
class IdCensus:
    unused: list[UnusedIds] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    at_ms: int = 0


@dataclass(slots=True)
class _Alike:
    count: int = 0
    sample: list[str] = field(default_factory=list)
    stride: int = 1

    def add(self, name: str) -> None:
        # Every so many-th id: a sample of all, whatever their number.
        if self.count % self.stride == 0:
            self.sample.append(name)
            if len(self.sample) > SAMPLE:
                del self.sample[1::2]
                self.stride *= 2
        self.count += 1


def pattern_of(transactional_id: str) -> str:
    """The id with its variable parts named: ``app-<uuid>``, ``sink-<number>-<number>``."""
    return _VARIABLE.sub(lambda match: f"<{match.lastgroup}>", transactional_id)


@operation
def unused_ids(
    cluster: Cluster,
    *,
    idle_ms: int = IDLE_MS,
    least: int = LEAST_IDS,
    least_spread_ms: int = LEAST_SPREAD_MS,
) -> Program[IdCensus]:
    """Patterns with at least ``least`` ids without a transaction for ``idle_ms``, the most numerous first.

    Brokers before Apache Kafka 3.8 have no such filter, and are reported as unanswered.
    """
    if not cluster.view.brokers:
        yield from cluster.retrying(cluster.refresh_brokers)
    answers = IdAnswers(cluster, ListFilter(_AT_REST, longer_than_ms=idle_ms))
    patterns: dict[str, _Alike] = {}
    for broker in sorted(cluster.view.brokers):
        reader = yield from answers.of(broker)
        if reader is not None:
            try:
                _count(reader, patterns)
            except PeerError as error:
                answers.note(broker, str(error))
    numerous = sorted(
        ((pattern, alike) for pattern, alike in patterns.items() if alike.count >= least),
        key=lambda entry: -entry[1].count,
    )
    unused = []
    for pattern, alike in numerous[:SAMPLE]:
        described = yield from describe_transactions(cluster, alike.sample)
        starts = [row.start_ms for row in described.rows.values() if row.start_ms is not None]
        if len(starts) > 1 and max(starts) - min(starts) >= least_spread_ms:
            unused.append((pattern, alike, min(starts), max(starts)))
    expiration_ms = (yield from _expiration_ms(cluster)) if unused else None
    rows = [
        UnusedIds(pattern, alike.count, alike.sample[0], oldest, newest, expiration_ms)
        for pattern, alike, oldest, newest in unused
    ]
    return IdCensus(rows, answers.unanswered, cluster.environment.wall_ms())


def _count(reader: CompactReader, patterns: dict[str, _Alike]) -> None:
    """Raises PeerError."""
    for _, state in read_states(reader):
        pattern = pattern_of(state.transactional_id)
        if pattern not in patterns and len(patterns) >= MOST_PATTERNS:
            continue
        patterns.setdefault(pattern, _Alike()).add(state.transactional_id)


def _expiration_ms(cluster: Cluster) -> Program[int | None]:
    broker = str(min(cluster.view.brokers))
    try:
        rows = yield from describe_configs(cluster, ResourceType.BROKER, broker, [EXPIRATION])
    except ClientError:
        return None
    return _number(row.value for row in rows)


def _number(values: Iterable[str | None]) -> int | None:
    return next((int(value) for value in values if value is not None and value.isdigit()), None)
