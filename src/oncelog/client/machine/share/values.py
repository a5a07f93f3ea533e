"""Settings of a share consumer, and the values that it gives to its caller (KIP-932, KIP-1206, KIP-1222)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, NamedTuple

from oncelog.base.ids import TopicPartition
from oncelog.base.units import MIB, MINUTE_MS
from oncelog.client.errors import ClientError, ConfigError
from oncelog.client.setting_checks import check_range
from oncelog.records.record import Headers

AcknowledgementMode = Literal["implicit", "explicit"]
AcquireMode = Literal["batch_optimized", "record_limit"]
ACQUIRE_MODES: Final[dict[AcquireMode, int]] = {"batch_optimized": 0, "record_limit": 1}
"""The modes' numbers on the wire."""
_ACKNOWLEDGEMENT_MODES: Final = ("implicit", "explicit")


class Acknowledge(IntEnum):
    """The ways to settle an acquired record; the numbers are those of the wire."""

    GAP = 0
    """There is no record at the offset. The consumer itself says so."""
    ACCEPT = 1
    """Processed: it is not delivered again."""
    RELEASE = 2
    """Not processed: it is delivered again, to any member, until its deliveries reach the group's limit."""
    REJECT = 3
    """Not processable: it is not delivered again. It goes to the group's dead-letter topic, if there is one."""
    RENEW = 4
    """Still in work: the lock starts again. The record has to be acknowledged once more."""


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Settings of a share consumer, with the defaults of Apache Kafka's. Times in milliseconds, sizes in bytes."""

    acknowledgement: AcknowledgementMode = "implicit"
    """``implicit`` accepts what one poll returned at the next poll or commit, and a loop's record when it asks for the
    next; ``explicit`` leaves it to the caller."""
    acquire: AcquireMode = "batch_optimized"
    """``batch_optimized`` acquires whole batches, perhaps more than ``max_records``; ``record_limit`` never more, from
    one leader at a time (Kafka 4.2 and later)."""
    max_records: int = 500
    """Records to acquire from a leader at once."""
    max_wait_ms: int = 500
    """How long a leader may wait for records; at most half the group's lock duration."""
    min_bytes: int = 1
    max_bytes: int = 50 * MIB
    check_crc: bool = True
    rack_id: str | None = None
    max_poll_interval_ms: int = 5 * MINUTE_MS
    """An asyncio consumer that is not polled for so long leaves the group."""

    def __post_init__(self) -> None:
        if self.acknowledgement not in _ACKNOWLEDGEMENT_MODES:
            raise ConfigError(f"acknowledgement={self.acknowledgement!r}: use {' or '.join(_ACKNOWLEDGEMENT_MODES)}")
        if self.acquire not in ACQUIRE_MODES:
            raise ConfigError(f"acquire={self.acquire!r}: use {' or '.join(ACQUIRE_MODES)}")
        for name, least in (
            ("max_records", 1),
            ("max_wait_ms", 0),
            ("min_bytes", 0),
            ("max_bytes", 1),
            ("max_poll_interval_ms", 1),
        ):
            check_range(name, getattr(self, name), least)


class SharePartition(NamedTuple):
    """A partition by its topic's id: a topic that was created again is another one."""

    topic_id: bytes
    partition: int


class AcquiredRange(NamedTuple):
    """Consecutive offsets that were acquired together."""

    first_offset: int
    last_offset: int
    delivery_count: int
    """1 for the first delivery."""


class AcquiredBatches(NamedTuple):
    """A partition in one leader's response: whole batches, and the offsets in them that were acquired."""

    partition: TopicPartition
    records: memoryview
    """Record batches as stored. They may have offsets that were not acquired, and control records."""
    acquired: tuple[AcquiredRange, ...]
    """Rising, without overlaps; only these may be used, and have to be acknowledged."""
    lock_until_ms: int
    """Milliseconds since 1970 by this machine's clock; see ``ShareRecord.lock_until_ms``."""
    topic_id: bytes
    leader: int
    """−1 if the connection to it has ended before the records were handed over: their acknowledgements will fail."""
    is_cut: bool = False
    """True if the response ended within a batch."""


class ShareRecord(NamedTuple):
    """A record that this member has acquired."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int
    delivery_count: int
    """1 for the first delivery."""
    lock_until_ms: int
    """The record is this member's at least until then, in milliseconds since 1970 by this machine's clock: the time of
    the request plus the group's lock duration. It may have passed already if the caller polls rarely. A renewal does
    not change it here; see ``lock_until_ms`` of the consumer."""
    topic_id: bytes


class Acknowledged(NamedTuple):
    """The result of one acknowledgement."""

    partition: TopicPartition
    first_offset: int
    last_offset: int
    kind: Acknowledge
    error: ClientError | None = None
    """None if the leader has carried it out; otherwise the records may be delivered again."""
