"""franz-go, sarama and kafka-go in one program, and KafkaJS in another: `go/` and `js/`, built once under `.work/`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.peers.clients.scenario import Scenario, expect_equal
from tests.peers.jars import WORK, PeerMissing

_HERE: Final = Path(__file__).parent
_TRANSACTIONS: Final = ("transactions-commit-abort", "transactions-offsets", "transactions-fencing")
_SCENARIOS: Final = ("produce-consume", "groups", "admin", "errors", *_TRANSACTIONS)


def _build(command: Sequence[str], directory: Path) -> None:
    try:
        run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise PeerMissing(f"{command[0]} is not installed") from None
    if run.returncode != 0:
        raise PeerMissing(f"{' '.join(command)}: {run.stderr[-2000:]}")


def _copied(name: str) -> Path:
    directory = WORK / "peers" / name
    directory.mkdir(parents=True, exist_ok=True)
    for source in (_HERE / name).iterdir():
        if source.is_file():
            shutil.copy2(source, directory / source.name)
    return directory


def _newer(product: Path, directory: Path) -> bool:
    return product.exists() and all(
        product.stat().st_mtime > source.stat().st_mtime for source in directory.iterdir() if source.is_file()
    )


def go_command() -> list[str]:
    """The program with Go's clients, built when its sources are newer."""
    directory = _copied("go")
    program = WORK / "peers" / "go-clients"
    if not _newer(program, _HERE / "go"):
        _build(["go", "build", "-o", str(program), "."], directory)
    return [str(program)]


def kafkajs_command() -> list[str]:
    """The KafkaJS program, its package installed from the lock."""
    directory = _copied("js")
    if not (directory / "node_modules" / "kafkajs").exists():
        _build(["npm", "ci", "--no-progress"], directory)
    return ["node", str(directory / "main.js")]


def _run(command: Sequence[str], scenario: str, bootstrap: str) -> None:
    run = subprocess.run([*command, bootstrap, scenario], capture_output=True, text=True, timeout=60, check=False)
    expect_equal(run.returncode, 0, f"{scenario}: {run.stderr[-2000:]}")


def _go(scenario: str, bootstrap: str) -> None:
    _run(go_command(), scenario, bootstrap)


def _kafkajs(scenario: str, bootstrap: str) -> None:
    _run(kafkajs_command(), scenario, bootstrap)


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
