"""Watches the other brokers for frozen processes, and ends their registrations before their sessions would.

Each watched broker gets a request at every tick; ``core.liveness.silence`` judges its silence. This broker then commits
its suspicion, and once another observer has one too, the end of the registration. A frozen broker that continues
registers again; its late writes carry epochs of leaderships and registrations that are over.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from oncelog.base.ids import BrokerId
from oncelog.base.tree import CommitOutcome
from oncelog.base.units import SECOND_MS
from oncelog.core.controller.brokers.suspicions import (
    end_frozen,
    observers_of,
    suspect,
    suspected_by,
    withdraw,
    would_help,
)
from oncelog.core.liveness.silence import TICK_MS, AwakeClock, Silence
from oncelog.node.brokers.broker_links import LinkPurpose
from oncelog.node.kernel.events import Report
from oncelog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

if TYPE_CHECKING:
    from oncelog.base.tree import Operation
    from oncelog.core.controller.image.cluster_image import ClusterImage
    from oncelog.core.controller.image.model import BrokerImage
    from oncelog.node.brokers.broker_links import BrokerLinks
    from oncelog.node.brokers.probe import Probe
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.cluster.metadata_log import MetadataLog
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.kernel.events import Outbox

RENEW_MS: Final = 1_000
"""A suspicion is committed again after this time, and a hopeless case is examined again."""
VALID_MS: Final = 3 * RENEW_MS
"""A suspicion of another observer counts for this time: it may be frozen itself and not withdraw it."""
ALONE_FACTOR: Final = 2
"""Limits that must pass where no other broker can agree."""


class _Watched:
    """A registration of another broker."""

    __slots__ = ("asks", "epoch", "is_ending", "not_before_ms", "probes", "silence", "suspected_ms", "timeout_ms")

    def __init__(self, epoch: int, timeout_ms: int) -> None:
        self.epoch = epoch
        # Its own: after a longer pause it reads the metadata before it answers.
        self.timeout_ms = timeout_ms
        self.silence = Silence()
        self.probes: dict[int, Probe] = {}
        # A request is unanswered.
        self.asks = False
        # A commit of the end of the registration is under way.
        self.is_ending = False
        # Nothing would be gained by the end of the registration; examined again at this time.
        self.not_before_ms = 0
        # The time of the last commit of this broker's suspicion.
        self.suspected_ms: int | None = None


class FreezeWatch:
    def __init__(
        self,
        metadata: Metadata,
        commits: MetadataLog,
        links: BrokerLinks,
        deadlines: Deadlines,
        outbox: Outbox,
        timeout_ms: int,
    ) -> None:
        self.ended_registrations = 0
        self._metadata = metadata
        self._commits = commits
        self._links = links
        self._deadlines = deadlines
        self._outbox = outbox
        self._timeout_ms = timeout_ms
        self._clock = AwakeClock()
        self._watched: dict[BrokerId, _Watched] = {}
        # When other observers' suspicions arrived, by suspect and observer.
        self._seen: dict[tuple[BrokerId, BrokerId], tuple[int, int]] = {}
        links.on_heard = self._heard
        self._watch(metadata.image)
        self._tick(deadlines.now_ms)

    def _limit_ms(self, watched: _Watched) -> int:
        return watched.timeout_ms + self._clock.lateness_ms

    @property
    def longest_pause_ms(self) -> int:
        """A pause of this process that others may find too long: less than their limit, as they see its end late."""
        return self._timeout_ms * 4 // 5

    def suspects(self) -> list[BrokerId]:
        """The brokers that this one finds frozen."""
        return [broker_id for broker_id in self._watched if self._is_frozen(broker_id)]

    def follow(self, image: ClusterImage, before: ClusterImage) -> None:
        if image.brokers is not before.brokers or image.controller_id != before.controller_id:
            self._watch(image)
        if image.suspicions is not before.suspicions:
            self._read_suspicions(image)

    def _watch(self, image: ClusterImage) -> None:
        own_id = self._metadata.broker_id
        watched: dict[BrokerId, _Watched] = {}
        for broker_id, broker in image.brokers.items():
            # A stopping broker stops answering, and has given its leaderships away. One without a time-out would answer
            # waiting requests after a pause, though others lead.
            is_exempt = broker.in_controlled_shutdown or not broker.freeze_timeout_ms
            if broker_id == own_id or is_exempt or own_id not in observers_of(image, broker_id):
                continue
            current = self._watched.pop(broker_id, None)
            if current is not None and current.epoch != broker.epoch:
                self._forget(broker_id, current)
                current = None
            watched[broker_id] = current or _Watched(broker.epoch, broker.freeze_timeout_ms)
        for broker_id, gone in self._watched.items():
            self._forget(broker_id, gone)
        self._watched = watched

    def _forget(self, broker_id: BrokerId, watched: _Watched) -> None:
        self._drop_probes(watched)
        self._withdraw(broker_id, watched)

    def _read_suspicions(self, image: ClusterImage) -> None:
        now_ms, own_id = self._clock.now_ms, self._metadata.broker_id
        seen = {}
        for key, suspicion in image.suspicions.items():
            previous = self._seen.get(key)
            is_same = previous is not None and previous[0] == suspicion.version
            seen[key] = previous if previous is not None and is_same else (suspicion.version, now_ms)
        self._seen = seen
        for suspect_id, observer in seen:
            watched = self._watched.get(suspect_id)
            if observer == own_id and (watched is None or watched.suspected_ms is None):
                self._commit(withdraw(image, suspect_id, own_id))  # withdrawn before it was in the image
            elif observer != own_id and watched is not None:
                self._examine(suspect_id)

    def _tick(self, now_ms: int) -> None:
        self._clock.advance(now_ms)
        for broker_id, watched in list(self._watched.items()):
            self._ask(broker_id, watched)
            self._examine(broker_id)
        self._deadlines.at(now_ms + self._pause_ms(), self._tick)

    def _pause_ms(self) -> int:
        """The time to the next tick: earlier when a broker's silence reaches the limit."""
        due = (watched.silence.due_ms(self._limit_ms(watched)) for watched in self._watched.values())
        left = [at_ms - self._clock.now_ms for at_ms in due if at_ms is not None and at_ms > self._clock.now_ms]
        return min([TICK_MS, *left])

    def _ask(self, broker_id: BrokerId, watched: _Watched) -> None:
        now_ms = self._clock.now_ms
        if not watched.asks:
            watched.asks = True
            watched.silence.requested(now_ms)
            timeout_ms = int(self._metadata.config.get("request.timeout.ms"))
            self._links.request(
                broker_id,
                LinkPurpose.LIVENESS,
                OffsetForLeaderEpochRequest(topics=[]),
                partial(self._answered, watched),
                timeout_ms,
            )
        if watched.silence.wants_probe(now_ms):
            self._probe(broker_id, watched)

    @staticmethod
    def _answered(watched: _Watched, _response: object) -> None:
        # An answer was counted when its bytes arrived. A lost connection is no answer.
        watched.asks = False

    def _probe(self, broker_id: BrokerId, watched: _Watched) -> None:
        probe = self._links.probe(
            broker_id,
            partial(self._accepted, watched),
            lambda: self._heard(broker_id),
        )
        if probe is not None:
            watched.probes[probe.link_id] = probe
            oldest = watched.silence.probe(probe.link_id, self._clock.now_ms)
            if oldest is not None:
                watched.probes.pop(oldest).drop()

    def _accepted(self, watched: _Watched, number: int) -> None:
        self._clock.advance(self._deadlines.now_ms)
        watched.silence.accepted(number, self._clock.now_ms)

    @staticmethod
    def _drop_probes(watched: _Watched) -> None:
        for probe in watched.probes.values():
            probe.drop()
        watched.probes.clear()

    def _heard(self, broker_id: BrokerId) -> None:
        watched = self._watched.get(broker_id)
        if watched is None:
            return
        if watched.suspected_ms is not None:
            self._report("info", f"broker {broker_id} answers again, after {self._seconds(watched)}")
        watched.silence.heard()
        if watched.probes:
            self._drop_probes(watched)
        self._withdraw(broker_id, watched)

    def _withdraw(self, broker_id: BrokerId, watched: _Watched) -> None:
        if watched.suspected_ms is not None:
            watched.suspected_ms = None
            self._commit(withdraw(self._metadata.image, broker_id, self._metadata.broker_id))

    def _commit(self, operations: list[Operation]) -> None:
        if operations:
            self._commits.commit(operations, lambda _outcome: None)

    def _is_frozen(self, broker_id: BrokerId, factor: int = 1) -> bool:
        watched = self._watched.get(broker_id)
        if watched is None:
            return False
        return watched.silence.is_frozen(self._clock.now_ms, factor * self._limit_ms(watched))

    def _examine(self, broker_id: BrokerId) -> None:
        watched, image = self._watched[broker_id], self._metadata.image
        broker, now_ms = image.brokers.get(broker_id), self._clock.now_ms
        if broker is None or watched.is_ending or now_ms < watched.not_before_ms or not self._is_frozen(broker_id):
            return
        if not would_help(image, broker_id):
            watched.not_before_ms = now_ms + RENEW_MS
            return
        own_id = self._metadata.broker_id
        others = [other for other in observers_of(image, broker_id) if other != own_id and not self._is_frozen(other)]
        agreeing = [other for other in suspected_by(image, broker) if other in others and self._is_valid(broker, other)]
        if agreeing or (not others and self._is_frozen(broker_id, ALONE_FACTOR)):
            self._end(broker, watched, agreeing)
        elif watched.suspected_ms is None or now_ms - watched.suspected_ms >= RENEW_MS:
            self._suspect(broker, watched)

    def _suspect(self, broker: BrokerImage, watched: _Watched) -> None:
        if watched.suspected_ms is None:
            self._report(
                "warning",
                f"broker {broker.broker_id} seems frozen: it accepts connections and has not answered for "
                f"{self._seconds(watched)}; it keeps its leaderships until another broker agrees",
            )
        watched.suspected_ms = self._clock.now_ms
        since_ms = self._deadlines.now_ms - watched.silence.silent_ms(self._clock.now_ms)
        self._commit(suspect(self._metadata.image, broker, self._metadata.broker_id, since_ms))

    def _is_valid(self, broker: BrokerImage, observer: BrokerId) -> bool:
        seen = self._seen.get((broker.broker_id, observer))
        return seen is not None and self._clock.now_ms - seen[1] < VALID_MS

    def _end(self, broker: BrokerImage, watched: _Watched, agreeing: list[BrokerId]) -> None:
        by = f"broker {', '.join(map(str, agreeing))} agrees" if agreeing else "no other broker could agree"
        self._report(
            "warning",
            f"broker {broker.broker_id} is frozen: it accepts connections and has not answered for "
            f"{self._seconds(watched)}; {by}. Ending its registration, so that others lead",
        )
        watched.is_ending = True
        for callback in self._links.on_frozen:
            callback(broker.broker_id)
        operations = end_frozen(self._metadata.image, broker, agreeing)
        self._commits.commit(operations, partial(self._ended, watched))

    def _ended(self, watched: _Watched, outcome: CommitOutcome) -> None:
        watched.is_ending = False
        if outcome is CommitOutcome.COMMITTED:
            self.ended_registrations += 1

    def _seconds(self, watched: _Watched) -> str:
        return f"{watched.silence.silent_ms(self._clock.now_ms) / SECOND_MS:.1f} s"

    def _report(self, level: str, message: str) -> None:
        self._outbox.effects.append(Report(level, message))
