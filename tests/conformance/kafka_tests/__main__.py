"""Runs classes of Apache Kafka's own tests against `oncelog serve`, and prints each failure and the counts.

`python -m tests.conformance.kafka_tests ShareConsumerTest --methods 'test[A-D].*'`, or a subject of `classes.py`. Each
test starts brokers of its own with the properties that it declares: two classes of Kafka's test kits have others of
their names here, `RaftClusterInvocationContext` and `KRaftQuorumImplementation`. What a test reads of a broker in its
own process is answered by `StandIns` and `StandInMetrics`; a test that reads more cannot pass.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.conformance.kafka_tests.classes import SUBJECTS
from tests.peers.jars import KAFKA_TESTS, classpath

CLASSES: Final = {name.rpartition(".")[2]: name for names in SUBJECTS.values() for name in names}
_JVM: Final = ("-Xmx700m", "-XX:+UseSerialGC", "-Xshare:auto", "-Djunit.jupiter.execution.timeout.mode=disabled")
"""Without the tests' own limits of a minute or two: a busy machine takes longer."""
_LAUNCHER: Final = "org.junit.platform.console.ConsoleLauncher"
_OUTPUT: Final = ("--disable-banner", "--disable-ansi-colors", "--details=testfeed")


def command(names: list[str], methods: str) -> list[str]:
    """The command line that runs the classes of these names, or their methods that match an expression."""
    ours = Path(sys.executable).absolute().with_name("oncelog")
    classes = [full for name in names for full in SUBJECTS.get(name, (CLASSES.get(name, name),))]
    return [
        "java",
        *_JVM,
        f"-Doncelog.command={ours}",
        "-cp",
        f"{KAFKA_TESTS.home()}:{classpath(KAFKA_TESTS)}",
        _LAUNCHER,
        "execute",
        *_OUTPUT,
        *(f"--select-class={name}" for name in classes),
        *([f"--include-methodname=.*#{methods}"] if methods else []),
    ]


def main() -> int:
    """The launcher's exit code: 1 when a test fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*", default=list(CLASSES), help=f"{', '.join(SUBJECTS)}; or a name")
    parser.add_argument("--methods", default="", metavar="EXPRESSION", help="only the methods whose names match")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:  # some log directories are relative
        return subprocess.run(command(given.classes, given.methods), check=False, cwd=place).returncode


if __name__ == "__main__":
    sys.exit(main())
