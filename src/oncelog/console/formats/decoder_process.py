"""The console's side of the decoding process: starts it when needed, kills it when it is late, and restarts it."""

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
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from oncelog.base.python_process import python_module
from oncelog.base.units import MIB
from oncelog.client.errors import ConfigError
from oncelog.console.formats.decoder_worker import MESSAGEPACK as MESSAGEPACK
from oncelog.console.formats.decoder_worker import REGISTERED, receive, send
from oncelog.console.formats.schema_files import SchemaFile

if TYPE_CHECKING:
    from oncelog.console.formats.registry_schemas import FetchedSchema

# A caller waits at most `ANSWER_S`, whatever the bytes are; values that are too large are not sent. A crash is an
# error of the value. The first start is not charged to any page (`prepare`); a restart is: otherwise a page full of
# such values would restart the process for each.

ANSWER_S: Final = 1.0
START_S: Final = 30.0  # Starting, importing libraries and reading schemas takes seconds on a busy machine.
MAX_VALUE_BYTES: Final = 4 * MIB
LOAD_S: Final = 4.0  # The first value of a schema waits for its libraries, too.
_MAX_REGISTERED: Final = 100
_MAX_ANSWER_BYTES: Final = 64 * MIB
_LAST_BREATH_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Text:
    """A value as text; ``error`` says why it could not be decoded."""

    text: str
    note: str = ""
    cut: bool = False
    error: str | None = None


class DecodingProcess:
    """One process for all threads of a console, one at a time."""

    def __init__(self, schemas: tuple[SchemaFile, ...] = ()) -> None:
        self.schemas = schemas
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ready = False
        self._was_started = False
        self._sent: set[str] = set()
        """Keys of the registry's schemas that the present process has."""
        if schemas:
            self._launch()  # It imports its libraries while the console does.

    def ready(self) -> None:
        """Wait until the schemas are read. Raises ConfigError for an unreadable one."""
        if self.schemas:
            with self._lock:
                self._ready_process()

    def prepare(self) -> None:
        """Wait for the first start; its errors are reported with each value."""
        if not self._was_started:
            with self._lock, contextlib.suppress(ConfigError):
                if not self._was_started:
                    try:
                        self._ready_process()
                    finally:
                        self._was_started = True

    def text(self, schema: int, payload: bytes, rest: bytes, how: Mapping[str, Any], wait_s: float = ANSWER_S) -> Text:
        """A payload as JSON, by a schema's index or as MessagePack.

        ``how`` has ``framed``, ``most`` (characters) and ``indent``. Bad bytes never raise: the error is in the result.
        """
        return self._text({"schema": schema, **how}, payload, rest, wait_s)

    def registered_text(
        self, fetched: FetchedSchema, payload: bytes, rest: bytes, how: Mapping[str, Any], wait_s: float = ANSWER_S
    ) -> Text:
        """The same by a registry's schema, which the process gets with the first value of its own."""
        header: dict[str, Any] = {"schema": REGISTERED, "key": fetched.key, **how}
        return self._text(header, payload, rest, wait_s, fetched)

    def _text(
        self, header: dict[str, Any], payload: bytes, rest: bytes, wait_s: float, fetched: FetchedSchema | None = None
    ) -> Text:
        if len(payload) > MAX_VALUE_BYTES:
            return Text("", error=f"values larger than {MAX_VALUE_BYTES // MIB} MiB are not decoded")
        header["rest"] = base64.b64encode(rest).decode()
        with self._lock:
            try:
                process = self._ready_process()
                if fetched is not None and fetched.key not in self._sent:
                    self._add(header, fetched)
                    wait_s += LOAD_S
                send(cast("BinaryIO", process.stdin), header, payload)
                answer, text = self._receive(process, wait_s)
            except ConfigError as error:
                return Text("", error=str(error))
            except TimeoutError:
                self._end()
                return Text("", error=f"decoding took longer than {wait_s:g} s and was stopped")
            except (OSError, EOFError, ValueError):
                return Text("", error=f"the decoder crashed{self._end(_LAST_BREATH_S)}")
        if answer["error"] is not None:
            return Text("", error=answer["error"])
        return Text(text.decode(), answer["note"], answer["cut"])

    def _add(self, header: dict[str, Any], fetched: FetchedSchema) -> None:
        """Put a schema into the header of a value; the process forgets all others when there are too many."""
        if len(self._sent) >= _MAX_REGISTERED:
            self._sent.clear()
            header["forget"] = True
        self._sent.add(fetched.key)
        header["document"] = fetched.document()

    def close(self) -> None:
        with self._lock:
            self._end()

    def _launch(self) -> subprocess.Popen[bytes]:
        self._is_ready = False
        self._sent.clear()
        self._process = process = subprocess.Popen(
            python_module("oncelog.console.formats.decoder_worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Only the console handles Ctrl-C.
        )
        return process

    def _ready_process(self) -> subprocess.Popen[bytes]:
        """A process that has read the schemas. Raises ConfigError."""
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
        """Read an answer. Raises TimeoutError, EOFError, ValueError."""
        output = cast("BinaryIO", process.stdout)
        return receive(cast("BinaryIO", _Patient(output.fileno(), time.monotonic() + wait_s)))

    def _end(self, wait_s: float = 0) -> str:
        """Kill the process; returns the signal that had ended it before, waiting up to ``wait_s``."""
        process, self._process = self._process, None
        if process is None:
            return ""
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(wait_s)
        process.kill()
        with contextlib.suppress(OSError), process:  # Unwritten input is lost.
            pass
        return f" ({signal.Signals(-code).name})" if code is not None and code < 0 else ""


class _Patient(io.RawIOBase):
    """Reads from a pipe until a deadline. Raises TimeoutError, and ValueError for impossible lengths."""

    def __init__(self, descriptor: int, deadline: float) -> None:
        self._descriptor = descriptor
        self._deadline = deadline

    def read(self, size: int = -1, /) -> bytes:
        """Exactly ``size`` bytes, fewer at the end."""
        if size > _MAX_ANSWER_BYTES:
            raise ValueError(f"the decoder announced {size} bytes")
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
