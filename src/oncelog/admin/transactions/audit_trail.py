"""The administrator's own record of ended transactions: user, action and checks, one JSON line for each step.

A line that announces an action is on disk before it; a second line records the result. Unlike the audit log of
oncelog's brokers, it works for every cluster.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oncelog.admin.transactions.durations import moment_text
from oncelog.base.notation.visible_text import visible_json
from oncelog.base.private_files import DIRECTORY_MODE, private_opener
from oncelog.client.errors import ClientError

Audit = Callable[[Mapping[str, Any]], None]
"""Writes one entry."""


def no_audit(entry: Mapping[str, Any]) -> None:
    """Discard entries, for callers that keep their own records."""


def audit_file(path: Path) -> Audit:
    """A writer that appends to ``path`` and syncs each line to disk. Raises ClientError if it cannot be written."""
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        # Fail now, before anything is done.
        with open(path, "a", encoding="utf-8", opener=private_opener):
            pass
    except OSError as error:
        raise ClientError(f"audit log {path} cannot be written: {error.strerror or error}; nothing was done") from None

    def write(entry: Mapping[str, Any]) -> None:
        try:
            with open(path, "a", encoding="utf-8", opener=private_opener) as file:
                file.write(visible_json(json.dumps(entry, ensure_ascii=False)) + "\n")
                file.flush()
                # Before the action: a crash must not hide it.
                os.fsync(file.fileno())
        except OSError as error:
            raise ClientError(f"audit log {path} cannot be written: {error.strerror or error}") from None

    return write


def entry_of(action: str, outcome: str, **details: Any) -> dict[str, Any]:
    """An entry: time, user and host, then the action."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container's user may have no name.
        user = str(os.getuid())
    return {
        "time": moment_text(int(time.time() * 1000)),
        "user": user,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "action": action,
        "outcome": outcome,
        **details,
    }
