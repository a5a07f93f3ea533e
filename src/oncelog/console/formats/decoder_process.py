"""The console's side of the decoding process: started when it is first needed, ended when it is late, started anew.

The rule: nobody waits for it longer than ``ANSWER_S``, whatever the bytes are; what is too large is not sent. A process
that ended is no error of the console but of the value it was given.

The first start is nobody's fault, so it counts in no page's time (``prepare``). One that is needed because a value has
ended the process does: else a page of such values would take a start for each.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from oncelog.base.python_process import python_module
from oncelog.base.units import MIB
from oncelog.client.errors import ConfigError
from oncelog.console.formats.decoder_worker import MESSAGEPACK as MESSAGEPACK
from oncelog.console.formats.decoder_worker import receive, send
from oncelog.console.formats.schema_files import SchemaFile

ANSWER_S: Final = 1.0
START_S: Final = 30.0
"""The time to start, import libraries and read schemas: on a busy machine that is seconds."""
LARGEST_VALUE: Final = 4 * MIB
_LARGEST_ANSWER: Final = 64 * MIB
_LAST_BREATH_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Text:
    """A value as text; ``error`` says why there is none."""

    text: str
    note: str = ""
    cut: bool = False
    error: str | None = None


class DecodingProcess:
    """One process for all threads of a console, which ask one after another."""

    def __init__(self, schemas: tuple[SchemaFile, ...] = ()) -> None:
        self.schemas = schemas
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._was_started = False
        if schemas:
            self._launch()  # It imports its libraries while the console does.

    def ready(self) -> None:
        """Wait until schemas are read, where there are any. Raises ConfigError for those that cannot be."""
        if self.schemas:
            with self._lock:
                self._ready_process()

    def prepare(self) -> None:
        """Wait for the first start; what is wrong with it is said of each value."""
        if not self._was_started:
            with self._lock, contextlib.suppress(ConfigError):
                if not self._was_started:
                    try:
                        self._ready_process()
                    finally:
                        self._was_started = True

    def text(self, schema: int, payload: bytes, rest: bytes, how: Mapping[str, Any], wait_s: float = ANSWER_S) -> Text:
        """A payload as JSON by a schema's number, or in MessagePack; ``how`` says ``framed``, ``most`` characters and
        ``indent``. It never raises for what the bytes are."""
        if len(payload) > LARGEST_VALUE:
            return Text("", error=f"more than {LARGEST_VALUE // MIB} MiB are not decoded")
        header = {"schema": schema, "rest": base64.b64encode(rest).decode(), **how}
        with self._lock:
            try:
                process = self._ready_process()
                send(cast("BinaryIO", process.stdin), header, payload)
                found, text = self._receive(process, wait_s)
            except ConfigError as error:
                return Text("", error=str(error))
            except TimeoutError:
                self._end()
                return Text("", error=f"decoding took longer than {wait_s:g} s and was ended")
            except (OSError, EOFError, ValueError):
                return Text("", error=f"the decoder did not survive it{self._end(_LAST_BREATH_S)}")
        if found["error"] is not None:
            return Text("", error=found["error"])
        return Text(text.decode(), found["note"], found["cut"])

    def close(self) -> None:
        with self._lock:
            self._end()

    def _launch(self) -> subprocess.Popen[bytes]:
        self._is_ready = False
        self._process = process = subprocess.Popen(
            python_module("oncelog.console.formats.decoder_worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the console's to answer.
        )
        return process

    def _ready_process(self) -> subprocess.Popen[bytes]:
        """A process that has its schemas. Raises ConfigError."""
        if self._process is not None and self._is_ready:
            return self._process
        process = self._process or self._launch()
        schemas = [
            {
                "kind": schema.kind,
                "path": str(schema.path),
                "message": schema.message,
                "content": base64.b64encode(schema.content).decode(),
            }
            for schema in self.schemas
        ]
        try:
            send(cast("BinaryIO", process.stdin), schemas)
            error = self._receive(process, START_S)[0]["error"]
        except (OSError, EOFError, ValueError, TimeoutError):
            raise ConfigError(
                f"the process that decodes values could not be started{self._end(_LAST_BREATH_S)}"
            ) from None
        if error is not None:
            self._end()
            raise ConfigError(f"schema {error}")
        self._is_ready = True
        return process

    def _receive(self, process: subprocess.Popen[bytes], wait_s: float) -> tuple[Any, bytes]:
        """An answer. Raises TimeoutError, EOFError, ValueError."""
        output = cast("BinaryIO", process.stdout)
        return receive(cast("BinaryIO", _Patient(output.fileno(), time.monotonic() + wait_s)))

    def _end(self, wait_s: float = 0) -> str:
        """End the process; how it had ended, where it did so within a time."""
        process, self._process = self._process, None
        if process is None:
            return ""
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(wait_s)
        process.kill()
        with contextlib.suppress(OSError), process:  # what was not written yet is lost
            pass
        return f" ({signal.Signals(-code).name})" if code is not None and code < 0 else ""


class _Patient(io.RawIOBase):
    """Reads from a pipe until a deadline. Raises TimeoutError, and ValueError for lengths that cannot be."""

    def __init__(self, descriptor: int, deadline: float) -> None:
        self._descriptor = descriptor
        self._deadline = deadline

    def read(self, size: int = -1, /) -> bytes:
        """Exactly ``size`` bytes, fewer at the end."""
        if size > _LARGEST_ANSWER:
            raise ValueError(f"an answer of {size} bytes")
        data = bytearray()
        while len(data) < size:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([self._descriptor], [], [], left)[0]:
                raise TimeoutError
            piece = os.read(self._descriptor, min(size - len(data), MIB))
            if not piece:
                break
            data += piece
        return bytes(data)
