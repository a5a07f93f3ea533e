"""The flight recorder: a node's inputs in order, with digests of its outputs, so that a failure can be replayed.

A recording begins with configuration, metadata and files. Then come every random id, every event with its time, and a
digest of the event's effects; ``oncelog sim --replay`` feeds them to a new node. Work between events is not recorded:
in a replay a job's slices run when it finishes, and a failed disk does not fail again. The format is one JSON document
per line, with bytes in base64.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from oncelog.base.security import PLAINTEXT_LISTENER, SecurityProtocol
from oncelog.base.tree import Change, CommitOutcome, TreeNode
from oncelog.node.access.redaction import SECRET_BYTES, redacted_frame, redacted_value
from oncelog.node.kernel.events import (
    BrokerSent,
    ConnectionOpened,
    Effect,
    Event,
    FileRange,
    MetadataChanged,
    MetadataLoaded,
    MetadataWritten,
    NodesRead,
    RequestReceived,
    Send,
    SendToBroker,
)
from oncelog.ports import Entropy

if TYPE_CHECKING:
    from oncelog.node.cluster.metadata import Metadata
    from oncelog.node.node import Node

FORMAT: Final = 3
"""3: reads of the tree's position are no events."""
_EVENTS: Final[dict[str, type]] = {kind.__name__: kind for kind in get_args(Event)}


class RecordingUnreadable(Exception):
    """The file is not a recording, or has a format that this version does not read."""


class RecordedFile(NamedTuple):
    """A file of the data directory as it was when the node began."""

    path: str
    modified_ms: int
    data: bytes


class Moment(NamedTuple):
    event: Event
    now_ms: int
    digest: str
    withheld: bool = False
    """The request was part of a login and is not recorded."""


@dataclass(slots=True)
class Recording:
    """A whole recording, read back."""

    config: dict[str, str] = field(default_factory=dict)
    bound: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The address of each listener."""
    now_ms: int = 0
    facts: list[TreeNode] = field(default_factory=list)
    files: list[RecordedFile] = field(default_factory=list)
    tokens: list[bytes] = field(default_factory=list)
    disks: list[tuple[int, int]] = field(default_factory=list)
    positions: list[int | None] = field(default_factory=list)
    """The tree's position, as it was read at once."""
    started: str = ""
    """Digest of the effects of the node's start."""
    position: int | None = None
    """The metadata's position at the start; None in recordings of earlier versions."""
    moments: list[Moment] = field(default_factory=list)
    end: str | None = None
    """Why the recording ends: it is full, or the node stopped."""


class FlightRecorder:
    """Writes a recording line by line, up to ``max_bytes``. ``write`` gets whole lines and must not fail."""

    def __init__(self, write: Callable[[bytes], None], max_bytes: int) -> None:
        self._write = write
        self._left = max_bytes
        self.full = False

    def begin(
        self,
        config: Mapping[str, str],
        bound: Mapping[str, tuple[str, int]],
        now_ms: int,
        nodes: Iterable[TreeNode],
        files: Iterable[RecordedFile],
    ) -> None:
        listeners = {name: list(address) for name, address in bound.items()}
        self._line(what="begin", format=FORMAT, config=dict(config), listeners=listeners, now_ms=now_ms)
        for node in nodes:
            value = _text_or_none(redacted_value(node.path, node.value))
            self._line(what="fact", path=node.path, value=value, version=node.version)
        for file in files:
            self._line(what="file", path=file.path, modified_ms=file.modified_ms, data=_text(file.data))

    def entropy(self, source: Entropy) -> Entropy:
        """A source of randomness that records every id."""
        return _RecordedEntropy(source, self)

    def token(self, token: bytes) -> None:
        # The secret for logins is recorded as zeros.
        self._line(what="token", token=_text(bytes(SECRET_BYTES) if len(token) == SECRET_BYTES else token))

    def disk(self, measure: Callable[[], tuple[int, int]]) -> Callable[[], tuple[int, int]]:
        """A measurement of the disk that records its results."""

        def measured() -> tuple[int, int]:
            sizes = measure()
            self._line(what="disk", sizes=list(sizes))
            return sizes

        return measured

    def position(self, read: Callable[[], int | None]) -> Callable[[], int | None]:
        """A read of the tree's position that records its results."""

        def recorded() -> int | None:
            position = read()
            self._line(what="position", position=position)
            return position

        return recorded

    def started(self, effects: Sequence[Effect], position: int) -> None:
        self._line(what="started", digest=digest_of(effects), position=position)

    def moment(self, event: Event, now_ms: int, effects: Sequence[Effect], before: Mapping[str, Any]) -> None:
        """Record an event. ``before`` is its encoding from before the node changed its buffers."""
        self._line(what="event", now_ms=now_ms, digest=digest_of(effects), **before)

    def end(self, reason: str) -> None:
        if not self.full:
            self.full = True
            self._write(json.dumps({"what": "end", "reason": reason}).encode() + b"\n")

    def _line(self, **content: Any) -> None:
        if self.full:
            return
        line = json.dumps(content, separators=(",", ":")).encode() + b"\n"
        self._left -= len(line)
        if self._left < 0:
            self.end("the recording is full")
        else:
            self._write(line)


class _RecordedEntropy:
    def __init__(self, source: Entropy, recorder: FlightRecorder) -> None:
        self._source = source
        self._recorder = recorder

    def token(self, size: int) -> bytes:
        token = self._source.token(size)
        self._recorder.token(token)
        return token


class RecordedNode:
    """A node whose events are recorded; used like the node itself."""

    def __init__(self, node: Node, recorder: FlightRecorder) -> None:
        self._node = node
        self._recorder = recorder
        self.connections = node.connections
        self.liveness = node.liveness
        self.next_deadline_ms = node.next_deadline_ms

    @property
    def cluster(self) -> Metadata:
        return self._node.cluster

    def start(self, now_ms: int) -> list[Effect]:
        effects = self._node.start(now_ms)
        self._recorder.started(effects, self._node.cluster.position)
        return effects

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        # Encoded first: a request's buffer is the node's to change.
        before = {} if self._recorder.full else self._encode(event)
        effects = self._node.handle(event, now_ms)
        self._recorder.moment(event, now_ms, effects, before)
        return effects

    def _encode(self, event: Event) -> dict[str, Any]:
        """Encode an event without its secrets."""
        withheld = self._node.holds_secrets(event)
        if isinstance(event, BrokerSent) and withheld:
            return {**_encode_event(BrokerSent(event.link_id, b"")), "withheld": True}
        if not isinstance(event, RequestReceived):
            return _encode_event(event)
        frame = None if withheld else redacted_frame(event.frame)
        if frame is None:
            return {**_encode_event(RequestReceived(event.connection_id, b"")), "withheld": True}
        return _encode_event(RequestReceived(event.connection_id, frame))


def digest_of(effects: Sequence[Effect]) -> str:
    """A short digest of effects: their kinds and tokens, and the bytes sent (for file ranges, only their sizes)."""
    digest = hashlib.blake2b(digest_size=8)
    for effect in effects:
        digest.update(type(effect).__name__.encode())
        for name in ("token", "connection_id", "link_id", "message"):
            digest.update(str(getattr(effect, name, "")).encode())
        if isinstance(effect, (Send, SendToBroker)):
            for chunk in effect.chunks:
                digest.update(str(chunk.size_bytes).encode() if isinstance(chunk, FileRange) else bytes(chunk))  # type: ignore[arg-type]
    return digest.hexdigest()


def read_recording(lines: Iterable[bytes]) -> Recording:
    """Read a recording; a torn last line is ignored. Raises RecordingUnreadable."""
    recording = Recording()
    try:
        for content in _contents(lines):
            _take(recording, content)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordingUnreadable(f"not a flight recording: {error!r}") from None
    if not recording.now_ms:
        raise RecordingUnreadable("not a flight recording: it has no beginning")
    return recording


def _contents(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if not line.endswith(b"\n"):
            return  # the process died while it wrote
        yield json.loads(line)


def _take(recording: Recording, content: dict[str, Any]) -> None:
    match content["what"]:
        case "begin":
            if content["format"] != FORMAT:
                raise RecordingUnreadable(
                    f"the recording has format {content['format']}; this version reads format {FORMAT}"
                )
            recording.config, recording.now_ms = content["config"], content["now_ms"]
            listeners = content.get("listeners") or {PLAINTEXT_LISTENER: content["listen"]}
            recording.bound = {name: (host, port) for name, (host, port) in listeners.items()}
        case "fact":
            recording.facts.append(TreeNode(content["path"], _bytes(content["value"]), content["version"]))
        case "file":
            file = RecordedFile(content["path"], content["modified_ms"], _bytes(content["data"]))
            recording.files.append(file)
        case "token":
            recording.tokens.append(_bytes(content["token"]))
        case "disk":
            recording.disks.append((content["sizes"][0], content["sizes"][1]))
        case "position":
            recording.positions.append(content["position"])
        case "started":
            recording.started, recording.position = content["digest"], content.get("position")
        case "event":
            withheld = content.get("withheld", False)
            recording.moments.append(Moment(_decode_event(content), content["now_ms"], content["digest"], withheld))
        case "end":
            recording.end = content["reason"]


def _encode_event(event: Event) -> dict[str, Any]:
    fields = {name: getattr(event, name) for name in event.__slots__}
    for name, value in fields.items():
        if isinstance(value, (bytes, bytearray, memoryview)):
            fields[name] = _text(value)
        elif isinstance(value, Exception):
            fields[name] = str(value)
        elif isinstance(value, (CommitOutcome, SecurityProtocol)):
            fields[name] = value.value
        elif name in ("changes", "nodes") and value is not None:
            fields[name] = [
                [change.path, _text_or_none(redacted_value(change.path, change.value)), change.version]
                for change in value
            ]
    return {"event": type(event).__name__, "fields": fields}


def _decode_event(content: dict[str, Any]) -> Event:
    fields = dict(content["fields"])
    kind = _EVENTS[content["event"]]
    if kind is RequestReceived:
        fields["frame"] = memoryview(bytearray(_bytes(fields["frame"])))
    if kind is BrokerSent:
        fields["data"] = _bytes(fields["data"])
    if kind is ConnectionOpened:
        fields["listener"] = tuple(fields["listener"])
        fields["security_protocol"] = SecurityProtocol(fields.get("security_protocol", SecurityProtocol.PLAINTEXT))
    if fields.get("failure") is not None:
        fields["failure"] = OSError(fields["failure"])
    if kind is MetadataWritten:
        fields["outcome"] = CommitOutcome(fields["outcome"])
    if kind is MetadataChanged:
        fields["changes"] = [Change(path, _value(text), version) for path, text, version in fields["changes"]]
    if kind in (MetadataLoaded, NodesRead) and fields["nodes"] is not None:
        fields["nodes"] = [TreeNode(path, _bytes(text or ""), version) for path, text, version in fields["nodes"]]
    event: Event = kind(**fields)
    return event


def _text(data: bytes | bytearray | memoryview) -> str:
    return base64.b64encode(data).decode()


def _text_or_none(data: bytes | None) -> str | None:
    return None if data is None else _text(data)


def _value(text: str | None) -> bytes | None:
    return None if text is None else _bytes(text)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
