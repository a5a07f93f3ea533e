"""The errors that end a mirror, and refusals that do not: each names the place and says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, TopicPartition
from oncelog.client.errors import BrokerRefused, ClientError, UnknownTopic, code_name, explain
from oncelog.mirror.positions_topic import CopiedPartition
from oncelog.mirror.progress import RefusalRow
from oncelog.mirror.refusals import Refused

_MAX_TEXTS: Final = 20
_WAYS_OUT: Final[dict[int, str]] = {
    ErrorCode.INVALID_TIMESTAMP: (
        "widen message.timestamp.before.max.ms or message.timestamp.after.max.ms of {target} there"
    ),
    ErrorCode.INVALID_RECORD: (
        "if the record has no key and the topic is compacted, change cleanup.policy of {topic} at the source, "
        "or of {target} with --no-configs"
    ),
    ErrorCode.MESSAGE_TOO_LARGE: (
        "raise max.message.bytes of {topic} at the source, which the mirror copies, or of {target} with --no-configs"
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: (
        "raise segment.bytes of {topic} at the source, which the mirror copies, or of {target} with --no-configs"
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "allow the mirror's user to describe and write {target}",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "allow the mirror's user to create {target}",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "set compression.type of {target} to a codec that the target has",
    ErrorCode.NOT_ENOUGH_REPLICAS: "start the target's brokers, or lower min.insync.replicas of {target}",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "start the target's brokers, or lower min.insync.replicas of {target}",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "leave the topic out with --topics, or choose another --source alias",
    ErrorCode.INVALID_REPLICATION_FACTOR: "set --replication-factor to a number of brokers that the target has",
    ErrorCode.INVALID_CONFIG: "change the key at the source, or leave the configurations alone with --no-configs",
    ErrorCode.TOPIC_DELETION_DISABLED: "delete {target} by other means, or run without --delete-topics",
}


@contextmanager
def at_target(subject: str = "") -> Iterator[None]:
    """Mark refusals as the target's; ``subject`` replaces the refusal's own subject."""
    try:
        yield
    except UnknownTopic:
        raise
    except BrokerRefused as error:
        raise BrokerRefused(error.code, f"{subject or error.subject} at the target", error.detail) from None


def refusal_row(alias: str, partition: TopicPartition, target: TopicPartition, refused: Refused) -> RefusalRow:
    """A refused record, in words that name the place, the cause and the way out."""
    text = (
        f"{partition} of {alias} stands at offset {refused.offset}: {target} at the target refuses the record: "
        f"{_cause(refused.code, refused.message)}; {_way_out(refused.code, partition.topic, target.topic)}. "
        "Everything else is copied, and a running mirror tries this again by itself"
    )
    return RefusalRow(alias, partition.topic, partition.partition, refused.offset, target.topic, refused.code, text)


def topic_refusal_row(alias: str, topic: str, target: str, code: int, cause: str, *, stands: bool = True) -> RefusalRow:
    """A refused topic or, if not ``stands``, a refused part of its configuration."""
    outcome = "is not copied" if stands else "is copied all the same"
    text = (
        f"topic {topic} of {alias} {outcome}: {cause}; {_way_out(code, topic, target)}. "
        "A running mirror tries this again by itself"
    )
    return RefusalRow(alias, topic, None, None, target, code, text, stands)


def _cause(code: int, message: str | None) -> str:
    return f"{(message or explain(code)).strip().rstrip('.')} ({code_name(code)})"


def _way_out(code: int, topic: str, target: str) -> str:
    text = _WAYS_OUT.get(code, "the log of the target's brokers may say more")
    return text.format(topic=TopicName(topic), target=target)


class MirrorIncomplete(ClientError):
    """A mirror copied everything except what the target refuses."""

    def __init__(self, refusals: Sequence[RefusalRow]) -> None:
        self.refusals = tuple(refusals)
        texts = [row.text for row in refusals[:_MAX_TEXTS]]
        more = len(refusals) - len(texts)
        super().__init__(
            "not everything is copied: " + "; ".join(texts) + (f"; and {more:,} more refusals" if more else "")
        )


class MirrorGap(ClientError):
    """Records of the source were deleted before they were copied."""

    def __init__(self, alias: str, partition: TopicPartition, position: int, first: int, end: int) -> None:
        if first > position:
            text = (
                f"{partition} of {alias}: offsets {position} to {first - 1} were deleted before they were copied "
                f"(its log begins at {first}); --on-gap record notes the gap and goes on behind it"
            )
        else:
            text = (
                f"{partition} of {alias}: the mirror is at offset {position}, but its log ends at {end}: "
                "the source has lost records that were copied; compare both with `oncelog mirror verify`"
            )
        super().__init__(text)


class TopicReplaced(ClientError):
    def __init__(self, alias: str, copied: CopiedPartition, topic_id: str) -> None:
        before = copied.topic_id or "none"
        super().__init__(
            f"topic {copied.partition.topic!r} of {alias} was deleted and created again (topic id {before}, now "
            f"{topic_id or 'none'}): what was copied to {copied.target!r} is of the old one; "
            "--on-gap record notes that and copies the new one behind it"
        )


class SourceReplaced(ClientError):
    def __init__(self, alias: str, before: str, now: str) -> None:
        super().__init__(
            f"--source {alias} was the cluster {before}, and is {now} now: its offsets do not continue the copy; "
            "give the other cluster a name of its own"
        )


class SameCluster(ClientError):
    """Source and target are one cluster and names stay: topics would be copied to themselves."""

    def __init__(self, alias: str, cluster_id: str) -> None:
        super().__init__(
            f"--source {alias} and --target are the same cluster ({cluster_id}): with --naming identity each topic "
            "would be copied to itself; name another cluster, or let --naming prefix give the copies other names"
        )


class TargetReplaced(ClientError):
    """A copy at the target was deleted, and its topic created again."""

    def __init__(self, copied: CopiedPartition) -> None:
        partition = f"{copied.target}-{copied.partition.partition}"
        super().__init__(
            f"topic {copied.target!r} at the target was deleted and created again: the {copied.offsets.records} "
            f"records that were copied to {partition} are gone; --on-gap record copies the source "
            "again, from its beginning"
        )
