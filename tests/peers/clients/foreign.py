"""franz-go, sarama and kafka-go in one program, KafkaJS in another: `go/` and `js/`, built by `tests.peers.fetch`.
`go_registry/` is franz-go's client of schema registries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.peers.clients.scenario import Scenario, expect_equal
from tests.peers.supply import Run, Supply
from tests.waiting import HANG_S

_HERE: Final = Path(__file__).parent
_TRANSACTIONS: Final = ("transactions-commit-abort", "transactions-offsets", "transactions-fencing")
_SCENARIOS: Final = ("produce-consume", "groups", "admin", "errors", *_TRANSACTIONS)


def _sources(name: str) -> bytes:
    return b"\0".join(path.name.encode() + b"\0" + path.read_bytes() for path in _files(name))


def _files(name: str) -> list[Path]:
    return sorted(path for path in (_HERE / name).iterdir() if path.is_file())


def _copy(name: str, place: Path) -> None:
    for source in _files(name):
        shutil.copy2(source, place / source.name)


def _build_go(place: Path, run: Run) -> None:
    _copy("go", place)
    run(["go", "build", "-v", "-o", "go-clients", "."], place)


def _build_go_registry(place: Path, run: Run) -> None:
    _copy("go_registry", place)
    run(["go", "build", "-v", "-o", "registry-client", "."], place)


def _install_js(place: Path, run: Run) -> None:
    _copy("js", place)
    run(["npm", "ci", "--no-progress"], place)


GO_CLIENTS: Final = Supply(
    "franz-go, sarama and kafka-go", "go", "Go's module proxy", "go-clients", partial(_sources, "go"), _build_go
)
GO_REGISTRY: Final = Supply(
    "franz-go's client of schema registries",
    "go",
    "Go's module proxy",
    "go-registry",
    partial(_sources, "go_registry"),
    _build_go_registry,
)
KAFKAJS_CLIENT: Final = Supply("KafkaJS", "npm", "npm", "kafkajs", partial(_sources, "js"), _install_js)


def _run(command: Sequence[str], scenario: str, bootstrap: str, security: Mapping[str, str] | None = None) -> None:
    environment = {**os.environ, "PEER_SECURITY": json.dumps(dict(security or {}))}
    run = subprocess.run(
        [*command, bootstrap, scenario], capture_output=True, text=True, timeout=HANG_S, check=False, env=environment
    )
    expect_equal(run.returncode, 0, f"{scenario}: {run.stderr[-2000:]}")


def _go(scenario: str, bootstrap: str, security: Mapping[str, str] | None = None) -> None:
    _run([str(GO_CLIENTS.home() / "go-clients")], scenario, bootstrap, security)


def _kafkajs(scenario: str, bootstrap: str, security: Mapping[str, str] | None = None) -> None:
    _run(["node", str(KAFKAJS_CLIENT.home() / "main.js")], scenario, bootstrap, security)


LOGINS: Final = {
    "franz-go": partial(_go, "security"),
    "sarama": partial(_go, "sarama-security"),
    "kafkajs": partial(_kafkajs, "security"),
}
"""Each logs in, writes, reads, and is told of a wrong login; given a bootstrap server and ``Mechanism`` (empty: a
certificate), ``User``, ``Password``, ``Token``, and the files ``CA`` and ``Certificate``."""


FRANZ_GO: Final[dict[str, Scenario]] = {name: partial(_go, name) for name in _SCENARIOS}
SARAMA: Final[dict[str, Scenario]] = {name: partial(_go, name) for name in ("sarama-2.1", "sarama-2.8", "sarama-max")}
KAFKA_GO: Final[dict[str, Scenario]] = {"kafka-go": partial(_go, "kafka-go")}
KAFKAJS: Final[dict[str, Scenario]] = {name: partial(_kafkajs, name) for name in _SCENARIOS}
SCENARIOS: Final[dict[str, Scenario]] = {
    **{f"franz-go {name}": scenario for name, scenario in FRANZ_GO.items()},
    **SARAMA,
    **KAFKA_GO,
    **{f"kafkajs {name}": scenario for name, scenario in KAFKAJS.items()},
}
