"""The part of a share consumer that does no I/O, for both drivers: records, and what becomes of them."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Sequence

from oncelog.base.ids import TopicPartition
from oncelog.client.errors import ClientError, Closed, OutOfTurn
from oncelog.client.machine.share.records import read_acquired
from oncelog.client.machine.share.values import (
    Acknowledge,
    Acknowledged,
    AcquiredBatches,
    SharePartition,
    ShareRecord,
    ShareSettings,
)
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.share_consumer import ShareConsumerPrograms

Acquired = ShareRecord | AcquiredBatches


class ShareRecords:
    """The methods that ``ShareConsumer`` and ``AsyncShareConsumer`` have in common; none of them sends anything."""

    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str], settings: ShareSettings | None) -> None:
        self._programs = ShareConsumerPrograms(cluster, group, topics, settings or ShareSettings())
        self._settings = self._programs.settings
        self._member = self._programs.member.member
        self._unread: deque[ShareRecord] = deque()
        """Records that a loop over the consumer has not reached."""
        self._errors: list[ClientError] = []
        self._is_closed = False

    @property
    def member_id(self) -> str:
        """The id of this member, as administrators see it."""
        return self._member.member_id

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that this member fetches from; other members may have them too."""
        return tuple(sorted(self._member.partitions.values()))

    @property
    def not_at_end(self) -> tuple[TopicPartition, ...]:
        """The assigned partitions that may have more to deliver: no fetch from them was answered yet, or the last
        answer had records."""
        return tuple(self._programs.not_at_end)

    @property
    def lock_timeout_ms(self) -> int | None:
        """The group's lock duration in milliseconds; None before the first answer of a leader."""
        return self._programs.lock_timeout_ms

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read other topics from the next poll on. Records that are locked stay so. Raises TypeError, ConfigError."""
        self._member.subscribe(topics)

    def lock_until_ms(self, record: ShareRecord) -> int | None:
        """How long the record is locked at least, in milliseconds since 1970, renewals included; None if it is not."""
        return self._programs.lock_until_ms(record.topic_id, record.partition, record.offset)

    def accept(self, acquired: Acquired) -> None:
        """Acknowledge as processed: it is not delivered again. See ``acknowledge``."""
        self.acknowledge(acquired, Acknowledge.ACCEPT)

    def release(self, acquired: Acquired) -> None:
        """Give back: it is delivered again, at once and to any member, until the group's limit of deliveries."""
        self.acknowledge(acquired, Acknowledge.RELEASE)

    def reject(self, acquired: Acquired) -> None:
        """Give up as not processable: it is not delivered again, but goes to the dead-letter topic if there is one."""
        self.acknowledge(acquired, Acknowledge.REJECT)

    def renew(self, acquired: Acquired) -> None:
        """Start the lock again (Kafka 4.2 and later). The record stays locked, and has to be acknowledged later."""
        self.acknowledge(acquired, Acknowledge.RENEW)

    def acknowledge(self, acquired: Acquired, kind: Acknowledge) -> None:
        """Acknowledge a record, or all acquired records of batches, in explicit mode. It is sent with the next ``poll``
        or ``commit``, which have the result.

        A record whose lock has ended has a result with an error. Raises OutOfTurn in implicit mode, and for a record
        that was acknowledged already.
        """
        if self._settings.acknowledgement == "implicit":
            raise OutOfTurn(
                "the consumer acknowledges by itself; use ShareSettings(acknowledgement='explicit') to do it yourself"
            )
        until_ms = acquired.lock_until_ms
        if isinstance(acquired, ShareRecord):
            partition, offset = SharePartition(acquired.topic_id, acquired.partition), acquired.offset
            self._programs.acknowledge(partition, offset, offset, kind, acquired.delivery_count, until_ms)
            return
        partition = SharePartition(acquired.topic_id, acquired.partition.partition)
        for first, last, count in acquired.acquired:
            self._programs.acknowledge(partition, first, last, kind, count, until_ms)

    def _begin_poll(self) -> None:
        self._require_open()
        if self._settings.acknowledgement == "implicit" and not self._unread:
            self._programs.accept_all()
        if self._errors:
            raise self._errors.pop(0)

    def _accept_read(self, record: ShareRecord) -> None:
        """A loop over the consumer is done with a record."""
        if self._settings.acknowledgement == "implicit" and not self._is_closed:
            self._programs.accept_locked(record)

    def _begin_commit(self) -> None:
        """In implicit mode, accept all records that the caller has got."""
        self._require_open()
        if self._settings.acknowledgement == "implicit":
            self._programs.accept_all(self._unread)

    def _read(self, arrived: Iterable[AcquiredBatches]) -> list[ShareRecord]:
        """The records of batches. Raises UnreadableRecords for a damaged batch, after the records before it."""
        records: list[ShareRecord] = []
        for batches in arrived:
            read = read_acquired(batches, check_crc=self._settings.check_crc)
            records += read.records
            self._errors += read.errors
            partition = SharePartition(batches.topic_id, batches.partition.partition)
            for first, last, kind in read.others:
                # They may have arrived twice, the second time after the first lock had ended.
                with contextlib.suppress(OutOfTurn):
                    self._programs.acknowledge(partition, first, last, kind, None, batches.lock_until_ms)
        if self._errors and not records:
            raise self._errors.pop(0)
        return records

    def _take_results(self) -> list[Acknowledged]:
        results = list(self._programs.results)
        self._programs.results.clear()
        return results

    def _take_unread(self) -> list[ShareRecord]:
        unread = list(self._unread)
        self._unread.clear()
        return unread

    def _require_open(self) -> None:
        if self._is_closed:
            raise Closed(f"the share consumer of group {self._member.group!r}")
