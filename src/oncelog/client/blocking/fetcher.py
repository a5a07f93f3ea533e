"""Fetches from all leaders at once, one request ahead: the next response is in flight while one is decoded.

At most one fetch is in flight to each broker, and each partition's records stay in order. ``machine.positions`` decides
what to request and how positions move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, cast

from oncelog.base.errors import PeerError
from oncelog.base.ids import TopicPartition
from oncelog.client.blocking.link import Link
from oncelog.client.errors import ClientError, ConnectionLost
from oncelog.client.machine.positions import Fetched, FetchSettings, Positions
from oncelog.client.programs.doubt import DOUBT_AGAIN_MS, DOUBT_MS, Doubt, Silent
from oncelog.client.programs.operation import BlockingRunner
from oncelog.client.programs.steps import Pending, Program, Sleep, Wait

_PATIENCE: Final = 5


class _Sent(NamedTuple):
    link: Link
    correlation_id: int
    requested: dict[TopicPartition, int]
    deadline_ms: int
    doubtful_ms: int
    """When a leader that sends nothing more is doubted."""
    missing: int = 0
    """Bytes that the answer lacked when last looked at; 0 before it begins."""


class Fetcher:
    def __init__(self, client: BlockingRunner, settings: FetchSettings) -> None:
        self._run = client.run
        self._cluster = client.cluster
        self._now_ms = client.cluster.now_ms
        self._doubt = Doubt(client.cluster)
        self.positions = Positions(client.cluster.view, settings)
        self._links: dict[int, Link] = {}
        self._sent: dict[int, _Sent] = {}
        self._failing_since_ms: int | None = None
        self._attempt = 0

    def __len__(self) -> int:
        return len(self.positions)

    def assign(
        self, positions: Mapping[TopicPartition, int], until: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Fetch exactly these partitions; responses in flight for others are dropped."""
        self._look_up(positions)
        self.positions.assign(positions, until)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions too."""
        self._look_up(positions)
        self.positions.seek(positions)

    def poll(self, wait_ms: int | None = None) -> list[Fetched]:
        """Batches that have arrived, waiting up to ``wait_ms`` (by default twice ``max_wait_ms``) for the first.

        Raises ClientError if brokers cannot be reached for ``retry_timeout_ms``.
        """
        allowed = self.positions.settings.max_wait_ms * 2 if wait_ms is None else wait_ms
        deadline = self._now_ms() + allowed
        while True:
            self._send_all()
            results = self._collect(max(0, min(deadline - self._now_ms(), DOUBT_AGAIN_MS)))
            self._leave_replaced_leaders()
            if results or self._now_ms() >= deadline or not len(self.positions):
                return results

    def wait(self, wait_ms: int) -> None:
        """Wait until part of a response has arrived, without reading it. Raises ClientError like ``poll``."""
        self._send_all()
        self._await(wait_ms)
        self._leave_replaced_leaders()

    def arrived(self, wait_ms: int) -> list[Fetched]:
        """Batches of one response that has arrived; others stay in the kernel's buffers. Raises ClientError like
        ``poll``.

        A response that has begun to arrive is awaited while parts of it come within ``wait_ms``, at most ``_PATIENCE``
        times as long.
        """
        last_ms = self._now_ms() + _PATIENCE * wait_ms
        begun = [broker for broker, sent in self._sent.items() if sent.link.missing]
        for broker in begun or list(self._sent):
            sent = self._sent[broker]
            results = self._take(broker, sent)
            while not results and sent.link.missing and self._sent.get(broker) is sent:
                missing, has_come = sent.link.missing, self._wait([sent], wait_ms)
                results = self._take(broker, sent)
                # Part of a TLS record may have arrived, too little to decrypt; and bytes below the low-water mark do
                # not end the wait.
                if (sent.link.missing == missing and not has_come) or self._now_ms() > last_ms:
                    break
            if results:
                return results
        return []

    def close(self) -> None:
        """Close the connections; requests in flight are lost."""
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._sent.clear()
        self._doubt.drop()

    def _look_up(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._run(self._cluster.retrying(partial(self._cluster.leader, partition)))

    def _link(self, broker: int) -> Link:
        """A link for fetching alone: a broker answers nothing else on a connection while a fetch waits."""
        link = self._links.get(broker)
        if link is None or not link.is_open:
            link = self._links[broker] = cast("Link", self._run(self._doubt.connect(broker)))
        return link

    def _send_all(self) -> None:
        now = self._now_ms()
        missing = self.positions.without_leader(now)
        try:
            if missing:
                self._run(self._cluster.metadata(missing))
            stale = [
                topic
                for topic in {
                    partition.topic for partitions in self.positions.leaders(now).values() for partition in partitions
                }
                if self._cluster.view.age_ms(topic, now) is None
            ]
            if stale:
                self._run(self._cluster.metadata(stale))
        except ClientError as error:
            self._failed(error)
        for broker, partitions in self.positions.leaders(self._now_ms()).items():
            if broker not in self._sent:
                self._send(broker, partitions)

    def _send(self, broker: int, partitions: list[TopicPartition]) -> None:
        try:
            link = self._link(broker)
            message, positions, at_most = self.positions.request(partitions)
            try:
                version = link.versions.choose(message, at_most, old=self.positions.settings.old_formats)
                correlation_id = link.submit(message, version)
            except ClientError:
                # The partitions may be requested again.
                self.positions.lost(positions)
                raise
        except ClientError as error:
            self._failed(error, partitions)
            return
        answered_ms = self._now_ms() + message.max_wait_ms
        deadline_ms = answered_ms + self._cluster.config.request_timeout_ms
        self._sent[broker] = _Sent(link, correlation_id, positions, deadline_ms, answered_ms + DOUBT_MS)

    def _collect(self, wait_ms: int) -> list[Fetched]:
        self._await(wait_ms)
        results: list[Fetched] = []
        for broker, sent in list(self._sent.items()):
            results += self._take(broker, sent)
        return results

    def _await(self, wait_ms: int) -> None:
        if not self._sent:
            due = self.positions.next_due_ms()
            pause = wait_ms if due is None else max(0, min(wait_ms, due - self._now_ms()))
            self._run(_step(Sleep(max(pause, 1))))
        else:
            self._wait([*self._sent.values(), *self._doubt.pending], wait_ms)

    def _wait(self, sent: Sequence[_Sent | Pending], wait_ms: int) -> bool:
        """Wait until bytes have arrived for one of them. Returns False if none have within ``wait_ms``."""
        return bool(self._run(_step(Wait(cast("Sequence[Pending]", sent), wait_ms))))

    def _leave_replaced_leaders(self) -> None:
        """Close the links to leaders that have sent nothing for long, if others lead by now."""
        now = self._now_ms()
        silent = {
            broker: Silent(sent.link, list(sent.requested))
            for broker, sent in list(self._sent.items())
            if self._is_silent(broker, sent, now)
        }
        self._run(self._doubt.pursue(silent))
        for broker, (link, _) in silent.items():
            if not link.is_open:
                self.positions.lost(self._sent.pop(broker).requested)

    def _is_silent(self, broker: int, sent: _Sent, now: int) -> bool:
        missing = sent.link.missing
        if missing != sent.missing:
            self._sent[broker] = sent._replace(missing=missing, doubtful_ms=max(sent.doubtful_ms, now + DOUBT_MS))
            return False
        return now >= sent.doubtful_ms and not self._wait([sent], 0)

    def _take(self, broker: int, sent: _Sent) -> list[Fetched]:
        try:
            response = sent.link.arrived(sent.correlation_id)
            if response is None:
                if self._now_ms() < sent.deadline_ms:
                    return []
                sent.link.close()
                self._doubt.add_silent(broker)
                # Others wait on theirs for as long again.
                self._cluster.abort_links(sent.link.address)
                raise ConnectionLost(f"no answer from {sent.link.address} in time")
            message = sent.link.decode(response)
            del self._sent[broker]
            results = self.positions.answered(sent.requested, message, self._now_ms())
        except PeerError as error:
            sent.link.close()
            raise ClientError(f"{sent.link.address} sent what cannot be read: {error}") from error
        except ClientError as error:
            self._sent.pop(broker, None)
            self.positions.lost(sent.requested)
            self._failed(error, list(sent.requested))
            return []
        self._failing_since_ms = None
        self._attempt = 0
        again = self.positions.leaders(self._now_ms()).get(broker)
        if again:
            self._send(broker, again)
        return results

    def _failed(self, error: ClientError, partitions: list[TopicPartition] | None = None) -> None:
        """Pause after a failed fetch and forget the leaders. Raises ``error`` if final, or fetches failed for too
        long."""
        now = self._now_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now
        if not self._cluster.may_pass(error) or now - self._failing_since_ms > self._cluster.config.retry_timeout_ms:
            raise error
        self._run(self._cluster.pause(self._attempt))
        self._attempt += 1
        for partition in partitions or ():
            self._cluster.view.forget(partition.topic)


def _step(step: Sleep | Wait) -> Program[object]:
    return (yield step)
