"""Send a recording's requests to a broker, in the recorded order of requests and answers, and compare the answers.

Ids that a broker makes for itself are translated; a long poll that ended without data is shortened, since waiting
proves nothing. `python -m tests.conformance.golden.replay ADDRESS RECORDING…` prints the differences.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from oncelog.base.errors import PeerError
from oncelog.handlers.registry import BY_KEY
from oncelog.records.batch import CorruptBatch, read_header
from oncelog.wire.header import RequestHeader, decode_request_header, decode_response_header, encode_request
from tests.conformance.golden.compare import Translation, differences
from tests.conformance.golden.corpus import DATA, scenario_of, warm_up
from tests.conformance.golden.exceptions import (
    excused,
    is_timed_out_fetch,
    is_unknown_to_4_3,
    leave_out_what_cannot_agree,
    leave_out_what_is_newer,
)
from tests.peers.clients.sweep.share_requests import await_initialised, group_type
from tests.peers.clients.sweep.wire import Wire
from tests.peers.recorder import Direction, Event, load
from tests.waiting import HANG_S

_SIZE: Final = struct.Struct(">i")
_API_VERSIONS_V0: Final = struct.pack(">hhih", 18, 0, 0, -1)
_SHORT_POLL_MS: Final = 10


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the recording."""

    header: RequestHeader
    message: Any
    name: str


def decode_request(frame: bytes) -> Asked | None:
    """The request in a frame; None when it is not one that we know."""
    try:
        header, position = decode_request_header(frame)
        api = BY_KEY[header.api_key]
        if not api.min_version <= header.api_version <= api.max_version:
            return None
        message = _request_class(header.api_key).decode(frame[position:], header.api_version)
    except (PeerError, KeyError):
        return None
    return Asked(header, message, api.name)


def decode_response(frame: bytes, request: Asked) -> Any:
    """The answer to a request; ApiVersions falls back to version 0 when it does not know the version."""
    _, position = decode_response_header(frame, request.header.api_key, request.header.api_version)
    return request.message.response_class().decode(frame[position:], request.header.api_version)


def timestamps(events: Iterable[Event]) -> Iterator[int]:
    """The largest timestamp of each batch that clients sent."""
    for event in events:
        request = decode_request(event.frame) if event.direction is Direction.REQUEST else None
        for topic in request.message.topic_data if request is not None and request.name == "Produce" else ():
            for data in topic.partition_data:
                with contextlib.suppress(CorruptBatch):
                    yield read_header(data.records or b"").max_timestamp


def named(request: Asked | None) -> str:
    """How a line names a request."""
    return "an unknown request" if request is None else f"{request.name} v{request.header.api_version}"


def answers_differ(
    request: Asked | None,
    recorded_frame: bytes,
    frame: bytes,
    translation: Translation,
    created: set[str],
    *,
    is_older: bool = False,
) -> Iterator[str]:
    """One line for every difference between the recorded answer and ours.

    ``created`` are topics made just now; ``is_older`` for a recording from Apache Kafka 4.3.
    """
    text = named(request)
    if request is None:
        if frame != recorded_frame:
            yield f"{text}: {frame.hex()[:200]}, Apache Kafka {recorded_frame.hex()[:200]}"
        return
    recorded, ours = decode_response(recorded_frame, request), decode_response(frame, request)
    leave_out_what_cannot_agree(request.name, recorded, ours)
    if is_older:
        leave_out_what_is_newer(request.name, recorded, ours)
    for line in differences(request.name, recorded, ours, translation):
        if not excused(request.name, recorded, ours, line, created):
            yield f"{text}: {line}; asked {request.message!r:.400}"


def _request_class(api_key: int) -> Any:
    api = BY_KEY[api_key]
    module = importlib.import_module(f"oncelog.wire.messages.{api.module}")
    return getattr(module, f"{api.name}Request")


class Connection:
    """One of the recording's connections, to the broker under test."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=HANG_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frame: bytes) -> None:
        """Send one frame; a broker that has closed already is found out when it is read from."""
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(_SIZE.pack(len(frame)) + frame)

    def receive(self) -> bytes | None:
        """The next frame; None when the broker has closed the connection."""
        size = self._exactly(4)
        return self._exactly(_SIZE.unpack(size)[0]) if size else None

    def close(self) -> None:
        """Close it from our side."""
        self._socket.close()

    def _exactly(self, size: int) -> bytes | None:
        received = b""
        while len(received) < size:
            try:
                more = self._socket.recv(size - len(received))
            except ConnectionError:
                more = b""
            if not more:
                return None
            received += more
        return received


class Replay:
    """One recording against one broker."""

    def __init__(self, address: tuple[str, int], events: Sequence[Event], *, is_older: bool = False) -> None:
        self._address = address
        self._is_older = is_older
        self._events = events
        self._translation = Translation()
        self._connections: dict[int, Connection] = {}
        self._asked: dict[tuple[int, int], Asked | None] = {}
        self._uncompared: set[tuple[int, int]] = set()
        self._created: set[str] = set()
        self._bystander: Connection | None = None

    def run(self) -> Iterator[str]:
        """One line for every difference."""
        answers = _answers(self._events)
        previous: Event | None = None
        try:
            for number, event in enumerate(self._events):
                if event.direction is Direction.REQUEST:
                    if previous and previous.direction is Direction.REQUEST and previous.connection != event.connection:
                        self._wait_until_met()
                    self._send(event, answers)
                elif event.direction is Direction.RESPONSE:
                    request = self._asked.get((event.connection, int.from_bytes(event.frame[:4], "big", signed=True)))
                    for line in self._receive(event):
                        yield f"event {number}: {line}"
                    self._wait_for_share_partitions(request)
                elif event.direction is Direction.CLOSED_BY_BROKER:
                    if self._answers_more(event.connection):
                        yield f"event {number}: an answer, Apache Kafka closes the connection"
                elif event.connection in self._connections:
                    self._connections.pop(event.connection).close()
                previous = event
        finally:
            for connection in [*self._connections.values(), *filter(None, [self._bystander])]:
                connection.close()

    def _answers_more(self, number: int) -> bool:
        connection = self._connections.pop(number, None)
        if connection is None:
            return False
        try:
            return connection.receive() is not None
        finally:
            connection.close()

    def _wait_until_met(self) -> None:
        """Return when the broker has read what was sent so far, so that it meets the next connection's request behind
        it, as recorded: it has answered a bystander who asked later."""
        if self._bystander is None:
            self._bystander = Connection(self._address)
        self._bystander.send(_API_VERSIONS_V0)
        self._bystander.receive()

    def _wait_for_share_partitions(self, request: Asked | None) -> None:
        """Return when the share partitions of a member that has just joined have a state, as it was at the recording:
        Apache Kafka makes it behind the answer."""
        if request is not None and request.name == "ShareGroupHeartbeat" and request.message.member_epoch == 0:
            topics = self._created & set(request.message.subscribed_topic_names or ())
            host, port = self._address
            with Wire(f"{host}:{port}") as wire:
                if topics and group_type(wire, request.message.group_id) == "share":
                    await_initialised(wire, request.message.group_id, *topics)

    def _send(self, event: Event, answers: dict[tuple[int, int], bytes]) -> None:
        connection = self._connections.get(event.connection)
        if connection is None:
            connection = self._connections[event.connection] = Connection(self._address)
        correlation_id = int.from_bytes(event.frame[4:8], "big", signed=True)
        if (event.connection, correlation_id) in answers and not _is_ours(event.frame):
            return
        request = decode_request(event.frame)
        self._asked[event.connection, correlation_id] = request
        if self._is_older and is_unknown_to_4_3(event.frame):
            self._uncompared.add((event.connection, correlation_id))
            answers = {}
        if request is None:
            connection.send(event.frame)
            return
        answer = answers.get((event.connection, correlation_id))  # none for acks=0, and where the connection ends
        if answer is not None and is_timed_out_fetch(request.name, decode_response(answer, request)):
            request.message.max_wait_ms = min(request.message.max_wait_ms, _SHORT_POLL_MS)
        self._translation.rewrite(request.message)
        self._note_creations(request)
        frame = b"".join(bytes(chunk) for chunk in encode_request(request.header, request.message))
        connection.send(frame[4:])

    def _receive(self, event: Event) -> Iterator[str]:
        correlation_id = int.from_bytes(event.frame[:4], "big", signed=True)
        if (event.connection, correlation_id) not in self._asked or event.connection not in self._connections:
            return  # an API that we do not have, or an answer that the client did not wait for
        requests = self._asked.pop((event.connection, correlation_id))
        text = named(requests)
        try:
            frame = self._connections[event.connection].receive()
        except TimeoutError:
            yield f"{text}: no answer"
            return
        if frame is None:
            yield f"{text}: the connection was closed, Apache Kafka answers"
            return
        if (event.connection, correlation_id) in self._uncompared:
            return
        yield from answers_differ(
            requests, event.frame, frame, self._translation, self._created, is_older=self._is_older
        )

    def _note_creations(self, request: Asked) -> None:
        if request.name == "CreateTopics" and not request.message.validate_only:
            self._created.update(topic.name for topic in request.message.topics)
        elif request.name == "Metadata" and request.message.allow_auto_topic_creation:
            self._created.update(topic.name for topic in request.message.topics or [])


def _is_ours(frame: bytes) -> bool:
    return int.from_bytes(frame[:2], "big") in BY_KEY


def _answers(events: Sequence[Event]) -> dict[tuple[int, int], bytes]:
    return {
        (event.connection, int.from_bytes(event.frame[:4], "big", signed=True)): event.frame
        for event in events
        if event.direction is Direction.RESPONSE
    }


def main() -> int:
    """Print every difference; 1 when there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("recording", nargs="+", help=f"a file, or a name in {DATA.name}/ without .xz")
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    result = 0
    for name in options.recording:
        path = Path(name) if name.endswith(".xz") else DATA / f"{name}.xz"
        warm_up((host, int(port)), scenario_of(path))
        for line in Replay((host, int(port)), load(path)).run():
            print(f"{path.stem}: {line}")
            result += 1
    return 1 if result else 0


if __name__ == "__main__":
    sys.exit(main())
