"""A consumer of a share group over blocking sockets (KIP-932): a queue of records, each acknowledged by itself.

``poll`` and ``commit`` do all the work, heartbeats included: call one of them more often than the group's session
time-out (45 s by default), and before the lock on a record ends (30 s by default).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from oncelog.client.blocking.client import Client
from oncelog.client.machine.share.values import Acknowledged, AcquiredBatches, ShareRecord, ShareSettings
from oncelog.client.programs.share_records import ShareRecords

OnAcknowledged = Callable[[list[Acknowledged]], None]
_IDLE_POLL_MS = 500


class ShareConsumer(ShareRecords):
    """One member of a share group; a context manager, for one thread.

    In implicit mode, the default, ``poll`` accepts the records of the poll before; a loop over the consumer accepts
    each record when it asks for the next, and ``commit`` all that was read. In explicit mode
    (``ShareSettings(acknowledgement="explicit")``) each record needs ``accept``, ``release`` or ``reject``, in any
    order and after any number of polls. ``close`` releases all other records.

    ``on_acknowledged`` is called with the results of acknowledgements: when ``poll`` begins (what arrives during it is
    for the next call), and when ``commit`` and ``close`` end. Its exception leaves that call; no record is lost.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        topics: Sequence[str],
        *,
        settings: ShareSettings | None = None,
        on_acknowledged: OnAcknowledged | None = None,
    ) -> None:
        super().__init__(client.cluster, group, topics, settings)
        self._run = client.run
        self._commit_timeout_ms = client.config.retry_timeout_ms
        self._on_acknowledged = on_acknowledged

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[ShareRecord]:
        return self.records()

    def records(self, idle_ms: int | None = None) -> Iterator[ShareRecord]:
        """Records as they arrive; ends after ``idle_ms`` without any from its partitions, by default never. In implicit
        mode each is accepted when the next is asked for.

        Raises what ``poll`` raises.
        """
        while True:
            is_assigned = bool(self.assignment)
            wait_ms = _IDLE_POLL_MS if idle_ms is None else idle_ms
            self._unread.extend(self.poll(wait_ms))
            if not self._unread and is_assigned and idle_ms is not None:
                return
            while self._unread:
                record = self._unread.popleft()
                yield record
                self._accept_read(record)

    def poll(self, wait_ms: int = 500) -> list[ShareRecord]:
        """Records that have been acquired, waiting for the first; possibly none after ``wait_ms``.

        Raises ClientError if the group or the leaders cannot be reached for ``retry_timeout_ms``; UnreadableRecords for
        a damaged batch, which is rejected; Closed. Call it again after an error.
        """
        if self._unread:
            return self._take_unread()
        return self._read(self.poll_batches(wait_ms))

    def poll_batches(self, wait_ms: int = 500) -> list[AcquiredBatches]:
        """Like ``poll``, without an object for each record: batches as received, and the offsets acquired in them."""
        self._begin_poll()
        if self._on_acknowledged is not None:
            # Not after the poll: what it has acquired would be lost if the callback raises.
            self._tell(self._take_results())
        return self._run(self._programs.poll(wait_ms, heartbeats=True))

    def commit(self, timeout_ms: int | None = None) -> list[Acknowledged]:
        """Send all acknowledgements, in implicit mode of all records read, and wait for the results.

        Returns the results since the last commit (with ``on_acknowledged``: since its last call), at most the newest
        10,000 ranges. Raises RequestTimedOut after ``timeout_ms`` (default: ``retry_timeout_ms``): commit again then.
        """
        self._begin_commit()
        self._run(self._programs.commit(self._commit_timeout_ms if timeout_ms is None else timeout_ms))
        results = self._take_results()
        self._tell(results)
        return results

    def close(self) -> None:
        """Send all acknowledgements, release the other records, leave the group, and close the connections."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._run(self._programs.close())
        finally:
            self._programs.abort()
            self._programs.member.close()
            self._tell(self._take_results())

    def _tell(self, results: list[Acknowledged]) -> None:
        if results and self._on_acknowledged is not None:
            self._on_acknowledged(results)
