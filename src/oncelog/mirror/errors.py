"""Errors that end a mirror: each names the place and says what to do."""

from __future__ import annotations

from oncelog.base.ids import TopicPartition
from oncelog.client.errors import ClientError
from oncelog.mirror.positions import CopiedPartition


class MirrorGap(ClientError):
    """Records of the source are gone that were not copied."""

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
    """A topic of the source was deleted and made anew."""

    def __init__(self, alias: str, copied: CopiedPartition, topic_id: str) -> None:
        before = copied.topic_id or "none"
        super().__init__(
            f"topic {copied.partition.topic!r} of {alias} was deleted and made anew (topic id {before}, now "
            f"{topic_id or 'none'}): what was copied to {copied.target!r} is of the old one; "
            "--on-gap record notes that and copies the new one behind it"
        )


class SourceReplaced(ClientError):
    """A source's alias names another cluster than before."""

    def __init__(self, alias: str, before: str, now: str) -> None:
        super().__init__(
            f"--source {alias} was the cluster {before}, and is {now} now: its offsets do not continue the copy; "
            "give the other cluster a name of its own"
        )


class SameCluster(ClientError):
    """Topics would be copied to themselves: source and target are one cluster, and names stay."""

    def __init__(self, alias: str, cluster_id: str) -> None:
        super().__init__(
            f"--source {alias} and --target are the same cluster ({cluster_id}): with --naming identity each topic "
            "would be copied to itself; name another cluster, or let --naming prefix give the copies other names"
        )


class TargetReplaced(ClientError):
    """A copy was deleted at the target, and its topic made anew."""

    def __init__(self, copied: CopiedPartition) -> None:
        where = f"{copied.target}-{copied.partition.partition}"
        super().__init__(
            f"topic {copied.target!r} at the target was deleted and made anew: the {copied.offsets.records} records "
            f"that were copied to {where} are gone; --on-gap record copies the source again, from its beginning"
        )
