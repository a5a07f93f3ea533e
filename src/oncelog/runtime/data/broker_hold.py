"""Holds a broker still while ``oncelog log backup`` notes its files: both sides.

A held broker's loop blocks: nothing is appended, renamed or answered, and the files stand still as after ``kill -9``.
The hold ends when the command releases it or dies, or after ``HOLD_S``, which the command notices.
"""

# Both sides talk only to their own user and to root, over a socket in Linux's abstract namespace that is named after
# the data directory's lock file: nothing of it lies on disk, and nothing stays behind after a kill.

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

VERSION: Final = 1
HOLD_S: Final = 5.0
"""Less than half of any usual session time-out. Brokers that are held together find none frozen."""
_ANSWER_S: Final = 30.0
"""How long the command waits for a busy broker."""
_LONGEST_LINE: Final = 64 << 10
_LONGEST_REQUEST: Final = 64
_HOLD: Final = b"hold 1\n"
_STATE: Final = b"state 1\n"
_RELEASE: Final = b"release\n"
_EXPIRED: Final = b"expired\n"
"""The answer to a release that was late."""
_CREDENTIALS: Final = struct.Struct("3i")  # process, user, group
_LOG: Final = logging.getLogger("oncelog.broker")


class HeldState(NamedTuple):
    """The broker as of its answer."""

    version: int
    tree: str | None
    """Path of the SQLite file of its cluster's metadata; None: ZooKeeper."""
    truncations: int
    """How often this run has cut a log: bytes noted before a cut may be others after it."""


class NotHeld(Exception):
    """The broker cannot be held; the message says why."""


class _Late(NotHeld):
    pass


def _address(lock_file: Path) -> str:
    status = os.stat(lock_file)
    return f"\0oncelog-hold/{status.st_dev}/{status.st_ino}"


def _peer_user(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])


class HoldServer:
    """The broker's side. ``state`` is called on the loop."""

    def __init__(self, state: Callable[[], HeldState]) -> None:
        self._state = state
        self._server: asyncio.Server | None = None

    async def start(self, loop: asyncio.AbstractEventLoop, lock_file: Path) -> None:
        """Listen, where the system has such sockets. A broker that cannot listen runs, and must be stopped for a
        backup."""
        if sys.platform != "linux":
            return
        listening = socket.socket(socket.AF_UNIX)
        try:
            listening.bind(_address(lock_file))
            self._server = await loop.create_unix_server(lambda: _HoldConnection(self._state), sock=listening)
        except OSError as error:
            listening.close()
            _LOG.warning("this broker cannot be backed up while it runs: %s", error.strerror or error)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()


class _HoldConnection(asyncio.Protocol):
    def __init__(self, state: Callable[[], HeldState]) -> None:
        self._state = state
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is one without saying so
        if _peer_user(transport.get_extra_info("socket")) not in (0, os.geteuid()):
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._transport.is_closing() or (
            len(self._received) < _LONGEST_REQUEST and not self._received.endswith(b"\n")
        ):
            return
        request, self._received = self._received, b""
        if request == _HOLD:
            self._hold()
        elif request == _STATE:
            self._transport.write(_line(self._state()))
        elif request == _RELEASE:
            self._transport.write(_EXPIRED)
        else:
            self._transport.abort()

    def _hold(self) -> None:
        """Block the loop until the command releases it."""
        with socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno())) as connection:
            connection.settimeout(HOLD_S)
            try:
                connection.sendall(_line(self._state()))
                if connection.recv(len(_RELEASE)) == _RELEASE:
                    connection.sendall(_RELEASE)
                    return
            except TimeoutError:
                return
            except OSError:
                pass
        self._transport.abort()


def _line(state: HeldState) -> bytes:
    return json.dumps(state._asdict()).encode() + b"\n"


class BrokerHold:
    """The command's side: a connection to the broker that runs on a data directory. Raises NotHeld, as all methods."""

    def __init__(self, lock_file: Path) -> None:
        self._lock_file = lock_file
        self._connect()

    def _connect(self) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.settimeout(_ANSWER_S)
        try:
            if sys.platform != "linux":
                raise NotHeld("only brokers on Linux can be backed up while they run")
            self._connection.connect(_address(self._lock_file))
            if _peer_user(self._connection) not in (0, os.geteuid(), self._lock_file.stat().st_uid):
                raise NotHeld("another user's process answers for it")
        except OSError:
            self.close()
            raise NotHeld(
                "it does not answer here: it is starting or stopping, runs on another host or in a container, or is of "
                "an earlier version"
            ) from None
        except NotHeld:
            self.close()
            raise

    def begin(self, within_s: float) -> HeldState | None:
        """Hold the broker, for at most ``HOLD_S``. None: it was too busy, and will not be held."""
        self._connection.settimeout(max(within_s, 0.001))
        try:
            return self._answer(_HOLD)
        except _Late:
            # The request may be read later. It finds its connection closed, which ends the hold.
            self.close()
            self._connect()
            return None
        finally:
            self._connection.settimeout(_ANSWER_S)

    def state(self) -> HeldState:
        return self._answer(_STATE)

    def release(self) -> None:
        with contextlib.suppress(OSError):  # ``was_held`` tells
            self._connection.sendall(_RELEASE)

    def was_held(self) -> bool:
        # False if the hold, or the broker, had ended before the release.
        try:
            return self._connection.recv(len(_RELEASE), socket.MSG_WAITALL) == _RELEASE
        except OSError:
            return False

    def close(self) -> None:
        self._connection.close()

    def _answer(self, request: bytes) -> HeldState:
        try:
            self._connection.sendall(request)
            answer = self._receive_line()
        except TimeoutError:
            raise _Late(f"it has not answered for {self._connection.gettimeout():.0f} s") from None
        except OSError as error:
            raise NotHeld(f"it does not answer ({error.strerror or error})") from None
        if not answer:
            raise NotHeld("it ended the connection: it has stopped, or runs as another user")
        try:
            fields = json.loads(answer)
            state = HeldState(*(fields[name] for name in HeldState._fields))
        except (ValueError, KeyError, TypeError):
            raise NotHeld("its answer cannot be read") from None
        if state.version != VERSION:
            raise NotHeld(f"it answers in version {state.version}, this program reads {VERSION}")
        return state

    def _receive_line(self) -> bytes:
        received = b""
        while not received.endswith(b"\n") and len(received) < _LONGEST_LINE:
            data = self._connection.recv(_LONGEST_LINE)
            if not data:
                return b""
            received += data
        return received
