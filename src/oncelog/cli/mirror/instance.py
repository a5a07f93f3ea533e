"""The name of a mirror instance: the host's name and the first number that no other instance on it has.

A file lock holds the number until the process dies. So a killed instance comes back under its name and takes over its
work at once.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Final

from oncelog.client.errors import ClientError

_MOST: Final = 256


class InstanceName:
    def __init__(self, target: str, aliases: list[str]) -> None:
        import fcntl

        digest = hashlib.sha256(f"{target} {sorted(aliases)}".encode()).hexdigest()[:16]
        host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:64] or "host"
        directory = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        for number in range(_MOST):
            path = directory / f"oncelog-mirror-{os.getuid()}-{digest}-{number}.lock"
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._descriptor)
                continue
            self.name = f"{host}-{number}"
            return
        raise ClientError(f"{_MOST} instances of this mirror run here; name this one with --instance")

    def close(self) -> None:
        os.close(self._descriptor)
