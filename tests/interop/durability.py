"""Kill the broker at random moments under load, start it again, and count: every acknowledged record, exactly once.

`python -m tests.interop.durability --seed 7 --rounds 50` runs a long one by hand; `--acks 1` shows what page-cache
acknowledgements survive (a kill of the process loses none of those either; a power cut would).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.load import Load, broken, create_topic, read_topic
from tests.peers.oncelog_serve import OncelogServe

TOPIC: Final = "durable"


def check(load: Load) -> Iterator[str]:
    """One line for every broken promise: refused, lost, doubled, out of order, or elsewhere than acknowledged."""
    yield from load.failed
    for partition, stored in enumerate(read_topic(load.bootstrap, TOPIC, len(load.sent))):
        for line in broken(load.acknowledged[partition], stored, stored):
            yield f"partition {partition}: {line}"


def run(directory: Path, *, seed: int, rounds: int, partitions: int = 3, longest_s: float = 0.3) -> list[str]:
    """Kill and restart `rounds` times under load; the broken promises."""
    chance = random.Random(seed)
    broker = OncelogServe(directory, properties={"log.segment.bytes": "1048576"}, forked=True).start()
    try:
        create_topic(broker.bootstrap_servers, TOPIC, partitions)
        load = Load(broker.bootstrap_servers, TOPIC, "producer", partitions)
        load.start()
        try:
            for _ in range(rounds):
                load.wait_for_more()
                time.sleep(chance.uniform(0, longest_s))
                broker.kill()
                broker.start()
        finally:
            load.stop()
        problems = list(check(load))
        print(f"seed {seed}: {rounds} kills, {load.count} records acknowledged", *problems, sep="\n")
        return problems
    finally:
        broker.kill()


def main() -> int:
    """Run by hand; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--directory", type=Path, required=True, help="an empty directory for the broker")
    options = parser.parse_args()
    return 1 if run(options.directory, seed=options.seed, rounds=options.rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
