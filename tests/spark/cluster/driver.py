"""The driver of ``test_cluster``: ``python -m tests.spark.cluster.driver MASTER SERVERS DIRECTORY``.

With one session on the cluster it runs ``oncelog load``, and copies a topic with the sink in both modes, while one
executor is killed and one task is held until its speculative twin has won. It prints a line of JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path

from oncelog.cli.main import invoke
from oncelog.spark.session.local_session import local_session
from oncelog.spark.sink.fault_points import EXECUTOR, HOLD
from tests.spark.jvms import java_options
from tests.spark.sink.queries import Copy
from tests.spark.starting import patient_starts

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
}
SMALL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.extraJavaOptions": " ".join(java_options()),
}
ROWS = 80
POINTS = {"2pc": ("task-begun", "after-flush"), "ledger": ("ledger-after-commit", "ledger-before-commit")}
"""Fault points of each mode: where an executor is killed, and where a task is held."""


def main() -> None:
    """Run the load and both copies, and print what became of them."""
    master, servers, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    told: dict[str, object] = {}
    config = {**SMALL, **SPECULATION}
    with local_session(master=master, config=config, log=directory / "spark.log") as spark, patient_starts():
        printed = io.StringIO()
        table = str(directory / "table")
        load = ["load", "cluster", "--to", table, "--value-format", "utf8", "--partition-by", "day", "--json"]
        with contextlib.redirect_stdout(printed):
            assert invoke([*load, "--bootstrap-servers", servers]) == 0
        told["load"] = json.loads(printed.getvalue())
        for mode, (killed, held) in POINTS.items():
            copy = Copy(spark, servers, "cluster", f"copy-{mode}", directory / mode)
            copy.options["exactlyOnce"] = mode
            copy.rows_per_epoch = ROWS // 2
            copy.order(killed, what=EXECUTOR)
            copy.order(held, what=HOLD)
            copy.run_to_the_end()
            told[mode] = {"failures": copy.failures, "held": copy.was_held(held), "left": copy.ordered}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
