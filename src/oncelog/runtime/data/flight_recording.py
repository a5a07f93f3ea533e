"""Writes a flight recording into the data directory while the broker runs (``oncelog.flight.recorder.max.bytes``).

Each start begins a new file and keeps the previous one: after a failure the broker is usually restarted first. Events
are written without syncs: after a kill the file has them all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from oncelog.base.private_files import private_opener
from oncelog.node.assembly import Outside
from oncelog.node.listeners.broker_settings import Address, Settings
from oncelog.node.observation.flight_recorder import FlightRecorder, RecordedFile
from oncelog.ports import Files

RECORDING: Final = "flight-recording.jsonl"
PREVIOUS: Final = "flight-recording.previous.jsonl"
KEY: Final = "oncelog.flight.recorder.max.bytes"
_LOG: Final = logging.getLogger("oncelog.broker")


class FlightRecording:
    def __init__(self, directory: Path, max_bytes: int) -> None:
        path = directory / RECORDING
        if path.exists():
            path.replace(directory / PREVIOUS)
        self._file = open(path, "wb", buffering=0, opener=private_opener)  # noqa: SIM115  # as long as the broker
        self.recorder = FlightRecorder(self._write, max_bytes)

    def begin(self, outside: Outside, settings: Settings, bound: Mapping[str, Address], now_ms: int) -> Outside:
        """Record the broker's initial state without its secrets; returns ports that record from then on."""
        facts = outside.coordination.subtree("/")
        files = _files_below(outside.files, "")
        self.recorder.begin(settings.config.without_secrets(), bound, now_ms, facts, files)
        if self.recorder.full:
            _LOG.warning("%s is too small for the contents of the data directory: nothing is recorded", KEY)
        return Outside(outside.files, outside.coordination, self.recorder.entropy(outside.entropy))

    def close(self) -> None:
        self.recorder.end("the broker stopped")
        self._file.close()

    def _write(self, line: bytes) -> None:
        try:
            self._file.write(line)
        except OSError as error:  # a full disk ends the recording, not the broker
            _LOG.warning("the flight recording ends: %s", error)
            self.recorder.full = True


def _files_below(files: Files, directory: str) -> Iterator[RecordedFile]:
    for name in files.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            files.list(path)
        except NotADirectoryError:
            if _belongs(path):
                file = files.open(path)
                yield RecordedFile(path, files.modified_ms(path), file.read(0, file.size()))
                file.close()
        else:
            yield from _files_below(files, path)


def _belongs(path: str) -> bool:
    """True if the file is an input of the node: not the tree's database, a recording, or the lock."""
    return not path.startswith(("coordination.db", "flight-recording", ".lock"))
