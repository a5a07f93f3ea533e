"""``python -m oncelog.cli.child_process …``: the command line, in a process that ends with the one that started it.

Its standard input is a pipe that the parent holds and never writes to. However the parent ends, ``kill -9`` included,
the system closes the pipe; then this process ends as by SIGTERM. Imports no typer, for brokers run here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading

from oncelog.cli.main import run


def end_with_stdin() -> None:
    """Signal SIGTERM to this process when its standard input ends. Blocks until then."""
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with_stdin, name="parent-watch", daemon=True).start()
    run()
