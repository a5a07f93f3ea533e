"""One broker of each kind for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.interop.share.servers import SERVERS, Server
from tests.peers.clients.share_member import KINDS


@pytest.fixture(scope="module", params=[pytest.param("kafka", marks=pytest.mark.java), "oncelog"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A running broker."""
    with SERVERS[request.param]() as running:
        yield running


_NEEDS: Final[dict[str, Any]] = {"java": pytest.mark.java, "go": pytest.mark.peer("go"), "confluent": ()}


@pytest.fixture(params=[pytest.param(kind, marks=_NEEDS[kind]) for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> str:
    """A client."""
    name: str = request.param
    return name
