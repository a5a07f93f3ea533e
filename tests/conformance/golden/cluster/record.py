"""Record conversations with three brokers of Apache Kafka: `python -m tests.conformance.golden.cluster.record [NAME…]`.

They are held with one cluster, one after the other. With `--ours` nothing is written: they are held with our brokers,
and what differs from the recording is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.golden.cluster.clusters import Brokers, OurBrokers, TheirBrokers
from tests.conformance.golden.cluster.comparison import compared
from tests.conformance.golden.cluster.conversation import Conversation
from tests.conformance.golden.cluster.conversations import CONVERSATIONS
from tests.conformance.golden.cluster.corpus import recording_of
from tests.conformance.golden.cluster.readiness import clear, make_ready
from tests.peers.recorder import Event, load, save


def held(name: str, brokers: Brokers, *, clears: bool = False) -> list[Event]:
    """Hold a conversation; what was said. It ``clears`` the brokers for the next one."""
    with Conversation(brokers) as talk:
        make_ready(talk)
        CONVERSATIONS[name](talk)
        if clears:
            clear(talk)
        return talk.events


def _record(names: Sequence[str]) -> int:
    """Record these; how many could not be. After one that could not the next ones have a fresh cluster."""
    left = list(names)
    failed = 0
    while left:
        with tempfile.TemporaryDirectory(prefix="apache-kafka-cluster-") as directory, contextlib.ExitStack() as stack:
            brokers = stack.enter_context(TheirBrokers(Path(directory)))
            while left:
                name = left.pop(0)
                started = time.monotonic()
                try:
                    events = held(name, brokers, clears=True)
                except (AssertionError, OSError, ValueError) as error:
                    print(f"{name}: {error!r}", file=sys.stderr, flush=True)
                    failed += 1
                    break
                size = save(recording_of(name), events)
                print(f"{name}: {len(events)} events, {size} bytes, {time.monotonic() - started:.0f} s", flush=True)
    return failed


def _compare(name: str) -> int:
    started = time.process_time()
    with OurBrokers() as brokers:
        lines = list(compared(load(recording_of(name)), held(name, brokers)))
    for line in lines:
        print(f"{name}: {line}")
    print(f"{name}: {len(lines)} differences, {time.process_time() - started:.1f} s of processor time", flush=True)
    return len(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, or compare ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("conversation", nargs="*", choices=[[], *CONVERSATIONS], help="all when none is named")
    parser.add_argument("--ours", action="store_true", help="hold them with our brokers and compare")
    options = parser.parse_args(arguments)
    names = options.conversation or list(CONVERSATIONS)
    wrong = sum(map(_compare, names)) if options.ours else _record(names)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
