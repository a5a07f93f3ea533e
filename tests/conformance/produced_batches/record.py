"""Asks Apache Kafka for its answers to all cases, and keeps them.

``python -m tests.conformance.produced_batches.record``
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.conformance.produced_batches.asking import GROUPS, Answers, ask_group
from tests.peers.apache_kafka import ApacheKafka

ANSWERS: Final = Path(__file__).with_name("answers.json")


def main() -> None:
    """Write the answers to their file."""
    with ApacheKafka() as kafka:
        answers: Answers = {name: ask_group(kafka.bootstrap_servers, name) for name in GROUPS}
    ANSWERS.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
