"""Record how Apache Kafka 3.9.1 encodes the samples: `python -m tests.conformance.wire.old_versions.record`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final

from tests.conformance.wire.old_versions.samples import GOLDEN, as_json, samples
from tests.peers.jars import OLD_KAFKA

ENCODER: Final = Path(__file__).with_name("Encode.java")


def main() -> None:
    """Write the golden file."""
    rows = [(one.name, one.version, as_json(one.message)) for one in samples()]
    lines = "\n".join(f"{name} {version} {json.dumps(fields)}" for name, version, fields in rows)
    run = subprocess.run(
        ["java", "-cp", f"{OLD_KAFKA['3.9.1'].home()}/*", str(ENCODER)],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
    )
    encoded = run.stdout.split("\n")[: len(rows)]
    golden = [[name, version, digits] for (name, version, _fields), digits in zip(rows, encoded, strict=True)]
    GOLDEN.write_text("[\n" + ",\n".join(json.dumps(row) for row in golden) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
