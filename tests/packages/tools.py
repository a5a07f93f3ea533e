"""Tools from other registries than PyPI that judge what is packaged; `tests.peers.fetch` gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.peers.supply import PeerMissing, Run, Supply

_CONTAINER_SPECS: Final = Path(__file__).parent / "container_specs"
_ACTIONLINT: Final = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"


def _fetch_promtool(place: Path, run: Run) -> None:
    run(["apt-get", "download", "-o", "APT::Sandbox::User=root", "prometheus"], place)
    (archive,) = place.glob("prometheus_*.deb")
    run(["dpkg", "-x", archive.name, "."], place)
    archive.unlink()
    if not (place / "usr" / "bin" / "promtool").exists():
        raise PeerMissing("the package prometheus has no promtool")


def _build_actionlint(place: Path, run: Run) -> None:
    run(["env", f"GOBIN={place.resolve()}", "go", "install", _ACTIONLINT], place)


def _build_container_specs(place: Path, run: Run) -> None:
    run(["go", "build", "-trimpath", "-o", str(place.resolve() / "container-specs"), "."], _CONTAINER_SPECS)


PROMTOOL: Final = Supply(
    title="promtool",
    tool="apt-get",
    registry="Debian's package of Prometheus",
    folder="promtool",
    source=lambda: b"prometheus",
    recipe=_fetch_promtool,
)
ACTIONLINT: Final = Supply(
    title="actionlint",
    tool="go",
    registry="Go modules",
    folder="actionlint",
    source=_ACTIONLINT.encode,
    recipe=_build_actionlint,
)
CONTAINER_SPECS: Final = Supply(
    title="container-specs",
    tool="go",
    registry="Go modules",
    folder="container-specs",
    source=lambda: b"".join(path.read_bytes() for path in sorted(_CONTAINER_SPECS.iterdir())),
    recipe=_build_container_specs,
)
"""The compose library and the schemas of OCI's image specification, as a command."""
