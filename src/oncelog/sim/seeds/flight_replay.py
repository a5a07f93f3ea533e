"""Replays a flight recording: the same start, the same events, and a comparison of the effects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from oncelog.coordination.memory import MemoryTree
from oncelog.node.assembly import Assembled, Outside, assemble
from oncelog.node.kernel.events import Effect, Event, Fatal, JobFinished, RunJob
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.node.observation.flight_recorder import Recording, digest_of
from oncelog.sim.virtual.files import MemoryFiles


@dataclass(slots=True)
class ReplayResult:
    events: int
    # Number of the first event with effects other than recorded (0: the start), or None.
    differs_at: int | None
    # The message with which the node stopped, None if it did not.
    failure: str | None
    # Why the recording ends.
    end: str | None


class _RecordedIds:
    def __init__(self, tokens: list[bytes]) -> None:
        self._tokens = deque(tokens)

    def token(self, size: int) -> bytes:
        token = self._tokens.popleft() if self._tokens else b""
        return token if len(token) == size else bytes(size)  # the effects will differ


def replay(recording: Recording, tell: Callable[[str], None] | None = None) -> ReplayResult:
    """Run until the end, until the node stops, or until an effect differs."""
    return _Replay(recording, tell or (lambda line: None)).run()


class _Replay:
    def __init__(self, recording: Recording, tell: Callable[[str], None]) -> None:
        self._recording = recording
        self._tell = tell
        self._now_ms = recording.now_ms
        self._jobs: dict[int, Iterator[None]] = {}
        self._failure: str | None = None
        tree = MemoryTree()
        tree.load(recording.facts)
        self._session = tree.session()

    def run(self) -> ReplayResult:
        assembled = self._assemble()
        node, reports = assembled.node, assembled.reports
        disks, positions = iter(self._recording.disks), iter(self._recording.positions)
        if self._recording.position is not None:
            node.cluster.position = self._recording.position  # the replay's tree has no history
        node.directory.measure = lambda: next(disks, (-1, -1))
        node.tree_reads.position_at_once = lambda: next(positions, None)
        effects = [*reports, *node.start(self._now_ms)]
        differs_at = None if digest_of(effects[len(reports) :]) == self._recording.started else 0
        self._process_effects(effects)
        done, end = 0, self._recording.end
        for number, moment in enumerate(self._recording.moments, 1):
            if differs_at is not None or self._failure is not None:
                break
            if moment.withheld:
                end = "a client logs in next, which is not recorded"
                break
            self._now_ms = moment.now_ms
            self._complete_job(moment.event)
            effects = node.handle(moment.event, moment.now_ms)
            self._tell(f"{moment.now_ms} {_shortened(moment.event)} -> {', '.join(type(e).__name__ for e in effects)}")
            self._process_effects(effects)
            done = number
            if digest_of(effects) != moment.digest:
                differs_at = number
        return ReplayResult(done, differs_at, self._failure, end)

    def _assemble(self) -> Assembled:
        files = MemoryFiles(now_ms=lambda: self._now_ms)
        for file in self._recording.files:
            directory = file.path.rpartition("/")[0]
            if directory:
                files.make_directory(directory)
            files.open(file.path, create=True).append([file.data])
            files.set_modified_ms(file.path, file.modified_ms)
        outside = Outside(files, self._session, _RecordedIds(self._recording.tokens))
        listeners = {name: f"{name}://{host}:{port}" for name, (host, port) in self._recording.bound.items()}
        config = {**self._recording.config, "listeners": ",".join(listeners.values())}
        for name in listeners:  # the users of PLAIN are not recorded
            config[f"listener.name.{name.lower()}.plain.sasl.jaas.config"] = _NO_USERS
        settings = read_settings(config, data_directory="data")
        return assemble(outside, settings, self._recording.bound, self._now_ms)

    def _complete_job(self, event: Event) -> None:
        if isinstance(event, JobFinished):
            for _ in self._jobs.pop(event.token, iter(())):
                pass

    def _process_effects(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, RunJob):
                self._jobs[effect.token] = effect.slices
            elif isinstance(effect, Fatal):
                self._failure = effect.message


_NO_USERS: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required;"


def _shortened(event: Event) -> str:
    text = repr(event)
    return text if len(text) < 120 else f"{text[:117]}..."
