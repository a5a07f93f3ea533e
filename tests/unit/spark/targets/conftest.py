"""An object store and a catalog, one of each for all tests of a process; every test has tables of its own there."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.peers.s3 import Lossy, ObjectStore, object_store
from tests.unit.spark.targets.tables import Lake


@pytest.fixture(scope="session")
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        running.bucket("lake")
        yield running


@pytest.fixture(scope="session")
def rest(store: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lossy]:
    from tests.peers.iceberg_rest import rest_catalog  # half a second, which every worker would spend while it collects

    with rest_catalog(tmp_path_factory.mktemp("rest"), store, "lake") as running:
        yield running


@pytest.fixture
def lake(request: pytest.FixtureRequest, store: ObjectStore, rest: Lossy, tmp_path: Any) -> Callable[[str], Lake]:
    """Makes a place for a table: ``lake("delta")``, ``"iceberg-rest"`` or ``"iceberg-sql"``."""

    def make(kind: str) -> Lake:
        name = f"t{uuid.uuid4().hex[:12]}"
        if kind == "delta":
            return Lake(f"delta:s3://lake/{name}", None, store.delta_options, store, r"_delta_log/\d+\.json$")
        if kind == "iceberg-rest":
            options = {**store.iceberg_options, "type": "rest", "uri": rest.endpoint}
            return Lake(f"iceberg:db.{name}", "rest", options, rest, rf"/tables/{name}$")
        places = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"s3://lake/{name}"}
        return Lake(f"iceberg:db.{name}", "sql", {**store.iceberg_options, **places}, store, r"metadata\.json$")

    return make
