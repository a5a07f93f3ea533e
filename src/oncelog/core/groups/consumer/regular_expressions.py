"""Subscriptions by regular expression (KIP-848): RE2, matched against all topics that the member may describe.

1. The coordinator resolves expressions off its loop, one resolution at a time for each group.
2. A new expression is resolved at once; known ones again after topics were added or the refresh interval has passed,
   and at most every ``LEAST_INTERVAL_MS``.
3. A new expression raises the group's epoch only when it is resolved, and one resolution raises it once for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.core.groups.consumer import records
from oncelog.core.groups.consumer.group import ConsumerGroup, ResolvedRegex
from oncelog.core.groups.consumer.member import ConsumerMember
from oncelog.core.groups.consumer.records import GroupRecord
from oncelog.core.groups.consumer.settings import GroupLimits
from oncelog.core.groups.modern.group import Refused
from oncelog.core.groups.modern.topics import Topics, hash_of_topics
from oncelog.records.patterns import Pattern, PatternRefused

LEAST_INTERVAL_MS: Final = 10_000
RESOLUTION_TIMEOUT_MS: Final = 30_000
"""Time after which the result of a resolution counts as lost, and another may begin."""


def change_regex(
    group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember
) -> tuple[bool, bool, list[GroupRecord]]:
    """Returns whether the member's expression changed, whether that takes effect at once, and the records.
    Raises Refused.
    """
    if before.regex == after.regex:
        return False, False, []
    result = []
    if before.regex and group.regex_subscribers(before.regex) == 1:
        result.append(records.regex_tombstone(group.group_id, before.regex))
    if not after.regex:
        return True, True, result
    if group.regex_subscribers(after.regex):
        return True, after.regex in group.regexes, result
    _check(after.regex)
    return True, False, result


def expressions_due(
    group: ConsumerGroup,
    before: ConsumerMember,
    after: ConsumerMember,
    topics: Topics,
    limits: GroupLimits,
    now_ms: int,
) -> frozenset[str]:
    """The expressions to resolve now: all of the group, or none."""
    is_new = before.regex != after.regex and bool(after.regex) and not group.regex_subscribers(after.regex)
    if now_ms < group.resolving_until_ms or not (is_new or group.regex_counts):
        return frozenset()
    last = next(iter(group.regexes.values()), None)
    # A time in the future is that of a coordinator whose clock is ahead.
    if last is not None and 0 <= now_ms - last.timestamp_ms <= LEAST_INTERVAL_MS:
        return frozenset()
    counts: Counter[str] = Counter(group.regex_counts)
    counts.subtract(filter(None, [before.regex]))
    counts.update(filter(None, [after.regex]))
    expressions = frozenset(regex for regex, count in counts.items() if count > 0)
    is_stale = (
        last is None
        or last.version < topics.version_with_new_topics
        or now_ms > last.timestamp_ms + limits.regex_refresh_interval_ms
    )
    if is_new or is_stale or len(expressions) != len(group.regexes):
        return expressions
    return frozenset()


def decide_resolution(group: ConsumerGroup, resolved: Mapping[str, ResolvedRegex], topics: Topics) -> list[GroupRecord]:
    """The records of a resolution. Expressions that lost their last subscriber meanwhile are left out."""
    result: list[GroupRecord] = []
    regexes = dict(group.regexes)
    for regex, resolution in sorted(resolved.items()):
        if group.regex_subscribers(regex):
            regexes[regex] = resolution
            result.append(records.regex(group.group_id, regex, resolution))
    has_changed = any(resolution.topics != group.resolved(regex).topics for regex, resolution in regexes.items())
    metadata_hash = hash_of_topics(group.subscribed_topics(resolved=regexes), topics)
    if has_changed or metadata_hash != group.metadata_hash:
        result.append(records.epoch(group.group_id, group.epoch + 1, metadata_hash))
        group.metadata_refresh_epoch = group.epoch + 1
    return result


def _check(regex: str) -> None:
    try:
        Pattern(regex)
    except PatternRefused as error:
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {_description(error)}.",
        ) from error


_JAVA_WORDS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
}
"""Complaints of RE2 in C++ → the same in Java, which brokers of Apache Kafka use."""


def _description(error: PatternRefused) -> str:
    complaint = error.complaint.partition(": ")[0]
    return _JAVA_WORDS.get(complaint, complaint) or str(error)
