"""franz-go's client of schema registries, unmodified, at our registry: its routes, errors and framed values."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from oncelog.schemas import Decoder, Encoder, Registry
from oncelog.testing import Broker
from tests.peers.clients.foreign import GO_REGISTRY
from tests.waiting import HANG_S

pytestmark = [pytest.mark.slow, pytest.mark.peer("go-registry")]


@pytest.fixture
def url() -> Iterator[str]:
    with Broker(registry=True) as broker:
        yield broker.registry_url


def run(url: str, *arguments: str) -> str:
    command = [str(GO_REGISTRY.home() / "registry-client"), url, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_routes_and_errors_are_what_it_expects(url: str) -> None:
    run(url, "routes")


def test_its_values_are_read_and_ours_are_read_by_it(url: str) -> None:
    with Registry(url) as registry:
        assert Decoder(registry).decode(bytes.fromhex(run(url, "write"))).value == {"id": 7, "note": "né"}
        run(url, "read", Encoder(registry, "points-value").encode({"id": 8, "note": "ours"}).data.hex())
