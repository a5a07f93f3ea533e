"""A stream into a table as a process that dies at a named point, as ``kill -9`` does it to it and its JVM."""

from __future__ import annotations

import json
import os
import signal
import sys

from oncelog.spark.jobs.load_report import Event
from oncelog.spark.jobs.shape import Shape
from oncelog.spark.jobs.stream_query import StreamRequest
from oncelog.spark.targets.entry import stream
from tests.spark.starting import patient_starts


def main() -> None:
    """Run up to the point that the first argument names; the second has the rest."""
    point, message = sys.argv[1], json.loads(sys.argv[2])

    def die(event: Event) -> None:
        if event.kind == point:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    how = StreamRequest("available-now", on_event=die)
    with patient_starts():
        stream(
            message["topic"],
            message["servers"],
            message["to"],
            how,
            shape=Shape("json", "number INT"),
            catalog=message["catalog"],
            storage_options=message["options"],
        )


if __name__ == "__main__":
    main()
