"""The programs of a share group's member: heartbeats, and the names and leaders of what it is assigned (KIP-932)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from oncelog.base.ids import uuid_text
from oncelog.client.errors import ClientError, UnsupportedRequest
from oncelog.client.machine.retry import Backoff
from oncelog.client.machine.share.member import ShareGroupMember
from oncelog.client.programs.cluster import Cluster
from oncelog.client.programs.coordinator_link import CoordinatorLink
from oncelog.client.programs.steps import Acquire, Program, call
from oncelog.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

_LONGEST_PAUSE_MS: Final = 60_000
_MIN_ATTEMPTS: Final = 3


class Failures:
    """Failures in a row of requests to one broker: pauses that grow, until they have lasted too long."""

    def __init__(self, cluster: Cluster) -> None:
        self.until_ms = 0
        """Nothing is to be sent before."""
        self._cluster = cluster
        self._backoff = Backoff(cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms)
        self._since_ms: int | None = None
        self._count = 0

    def add(self, error: ClientError) -> None:
        """Pause. Raises ``error`` if it is final, or has lasted for ``retry_timeout_ms``."""
        now_ms = self._cluster.now_ms()
        self._since_ms = now_ms if self._since_ms is None else self._since_ms
        self.pause()
        # A caller that polls rarely may see one failure long after another.
        is_over = self._count >= _MIN_ATTEMPTS and now_ms - self._since_ms > self._cluster.config.retry_timeout_ms
        if is_over or not self._cluster.may_pass(error):
            self._since_ms = None
            raise error

    def pause(self) -> None:
        delay_ms = self._backoff.delay_ms(self._count, self._cluster.environment.jitter(-200, 200))
        self.until_ms = self._cluster.now_ms() + delay_ms
        self._count += 1

    def clear(self) -> None:
        self._since_ms, self._count, self.until_ms = None, 0, 0


class ShareMemberPrograms:
    """Every heartbeat goes through one lock: one is outstanding at a time."""

    def __init__(self, cluster: Cluster, member: ShareGroupMember) -> None:
        self.member = member
        self._cluster = cluster
        self._coordinator = CoordinatorLink(cluster, member.group)
        self._exchanging = cluster.environment.lock()
        self._metadata_due_ms = 0
        self._failures = Failures(cluster)

    def pause_ms(self, now_ms: int) -> int:
        """The time until ``advance`` is due."""
        due_ms = self.member.heartbeat_due_ms
        return _LONGEST_PAUSE_MS if due_ms is None else max(0, due_ms - now_ms, self._failures.until_ms - now_ms)

    def advance(self) -> Program[None]:
        """Send the heartbeat that is due, if any, and apply its response. Raises ClientError; to be called again."""
        yield Acquire(self._exchanging)
        try:
            if self.pause_ms(self._cluster.now_ms()) == 0:
                yield from self._heartbeat()
                self._failures.clear()
        except ClientError as error:
            self._coordinator.forget()
            self._failures.add(error)
        finally:
            self._exchanging.release()

    def look_up(self) -> Program[None]:
        """Ask for what the metadata lacks: names of assigned topics, and leaders. Raises ClientError."""
        cluster, member, now_ms = self._cluster, self.member, self._cluster.now_ms()
        if now_ms < self._metadata_due_ms:
            return
        unnamed = member.unnamed_topics
        stale = sorted(
            {
                name.topic
                for name in member.partitions.values()
                if cluster.view.leader(name) is None or cluster.view.age_ms(name.topic, now_ms) is None
            }
        )
        if not unnamed and not stale:
            return
        self._metadata_due_ms = now_ms + cluster.config.retry_backoff_ms
        try:
            if unnamed:
                member.learn((yield from cluster.topic_names(unnamed)))
            if stale:
                yield from cluster.metadata(stale)
        except ClientError as error:
            if not cluster.may_pass(error):
                raise

    def leave(self) -> Program[None]:
        """Leave the group. Raises ClientError."""
        yield from self._coordinator.say(self.member.leave())

    def give_up(self) -> Program[None]:
        """The caller has not polled for too long: leave until it does."""
        yield from self._coordinator.say_if_reachable(self.member.give_up())

    def close(self) -> None:
        self._coordinator.close()

    def _heartbeat(self) -> Program[None]:
        link = yield from self._coordinator.open()
        if not link.versions.supports(ShareGroupHeartbeatRequest):
            raise UnsupportedRequest(
                f"{link.address} has no share groups (Apache Kafka 4.1 and later have): use a consumer group"
            )
        request = self.member.next_request(self._cluster.now_ms())
        if request is not None:
            response = yield from call(link, request)
            self.member.answered(response, self._cluster.now_ms())


def new_member_id(cluster: Cluster) -> str:
    """A random UUID as Apache Kafka's clients write it, never like an option of a command line. Leaders parse it."""
    while True:
        number = cluster.environment.jitter(0, 2**128 - 1)
        text = uuid_text(UUID(int=number, version=4).bytes)
        if not text.startswith("-"):
            return text
