"""Runs classes of Apache Kafka's own tests against `oncelog serve`, and prints each failure and the counts.

`python -m tests.conformance.kafka_tests ShareConsumerTest --methods 'test[A-D].*'`. Each test starts brokers of its
own with the properties that it declares (`RaftClusterInvocationContext.java`). Tests that read a broker's metrics in
their own process cannot pass.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.peers.jars import KAFKA_TESTS, classpath

CLASSES: Final = {
    name.rpartition(".")[2]: name
    for name in (
        "org.apache.kafka.clients.consumer.ShareConsumerTest",
        "org.apache.kafka.clients.consumer.ShareConsumerRackAwareTest",
        "kafka.server.ShareFetchAcknowledgeRequestTest",
        "kafka.server.ShareGroupDescribeRequestTest",
        "kafka.server.ShareGroupHeartbeatRequestTest",
    )
}
_JVM: Final = ("-Xmx700m", "-XX:+UseSerialGC", "-Xshare:auto")
_LAUNCHER: Final = "org.junit.platform.console.ConsoleLauncher"
_OUTPUT: Final = ("--disable-banner", "--disable-ansi-colors", "--details=testfeed")


def command(names: list[str], methods: str) -> list[str]:
    """The command line that runs the classes of these names, or their methods that match an expression."""
    ours = Path(sys.executable).with_name("oncelog")
    selected = [f"--select-class={CLASSES.get(name, name)}" for name in names]
    return [
        "java",
        *_JVM,
        f"-Doncelog.command={ours}",
        "-cp",
        f"{KAFKA_TESTS.home()}:{classpath(KAFKA_TESTS)}",
        _LAUNCHER,
        "execute",
        *_OUTPUT,
        *selected,
        *([f"--include-methodname=.*#{methods}"] if methods else []),
    ]


def main() -> int:
    """The launcher's exit code: 1 when a test fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*", default=list(CLASSES), help=f"{', '.join(CLASSES)}, or a full name")
    parser.add_argument("--methods", default="", metavar="EXPRESSION", help="only the methods whose names match")
    given = parser.parse_args()
    return subprocess.run(command(given.classes, given.methods), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
