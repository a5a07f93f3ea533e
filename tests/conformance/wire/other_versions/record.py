"""Record how Apache Kafka 3.9.1 and 4.4.0 encode the samples.

`python -m tests.conformance.wire.other_versions.record` needs the jars of both.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.conformance.wire.other_versions.samples import GOLDEN, as_json, samples
from tests.peers.jars import KAFKAS, OLD_KAFKA, REFERENCE_VERSION
from tests.peers.supply import Supply

ENCODER: Final = Path(__file__).with_name("Encode.java")


def main() -> None:
    """Write the golden file."""
    rows = [(sample.name, sample.version, json.dumps(as_json(sample.message))) for sample in samples()]
    encoded = [_encoded(supply, rows) for supply in (OLD_KAFKA["3.9.1"], KAFKAS[REFERENCE_VERSION])]
    golden = [
        [name, version, next(filter(None, digits))]
        for (name, version, _fields), *digits in zip(rows, *encoded, strict=True)
    ]
    GOLDEN.write_text("[\n" + ",\n".join(json.dumps(row) for row in golden) + "\n]\n", encoding="utf-8")


def _encoded(supply: Supply, rows: Sequence[tuple[str, int, str]]) -> list[str]:
    """The hexadecimal digits of each row; empty where this release lacks the version."""
    lines = "\n".join(f"{name} {version} {fields}" for name, version, fields in rows)
    java = ["java", "-cp", f"{supply.home()}/*", str(ENCODER)]
    run = subprocess.run(java, input=lines, capture_output=True, text=True, check=True)
    return run.stdout.split("\n")[: len(rows)]


if __name__ == "__main__":
    main()
