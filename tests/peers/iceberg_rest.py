"""A REST catalog of Iceberg on the loopback: the protocol's requests, over pyiceberg's SQL catalog in a SQLite file.

A peer for tests alone (PyPI has no such server): a commit is made if the requirements that come with it hold, one at a
time, as the protocol wants it; there are no credentials, and a client finds the tables' files by its own means.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import CommitTableRequest, Table
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.peers.s3 import Lossy, ObjectStore, running

_CODES: Final[dict[type[Exception], int]] = {
    CommitFailedException: 409,
    NamespaceAlreadyExistsError: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    TableAlreadyExistsError: 409,
}


@contextmanager
def rest_catalog(directory: Path, store: ObjectStore, bucket: str) -> Iterator[Lossy]:
    """The catalog for the time of the block, with its tables in a bucket."""
    options = {**store.iceberg_options, "uri": f"sqlite:///{directory}/rest.db", "warehouse": f"s3://{bucket}/rest"}
    with running("tests.peers.iceberg_rest", json.dumps(options)) as endpoint:
        yield Lossy(endpoint)


class Routes:
    """The requests of the protocol that clients of tables make."""

    def __init__(self, options: dict[str, str]) -> None:
        self._catalog = SqlCatalog("rest", **options)
        self._lock = threading.Lock()

    async def config(self, request: Request) -> Response:
        return JSONResponse({"defaults": {}, "overrides": {}})

    async def create_namespace(self, request: Request) -> Response:
        expected = await request.json()
        self._catalog.create_namespace(tuple(expected["namespace"]))
        return JSONResponse(expected)

    async def load_namespace(self, request: Request) -> Response:
        name = _namespace(request)
        if not self._catalog.namespace_exists(name):
            raise NoSuchNamespaceError("no such namespace")
        return JSONResponse({"namespace": list(name), "properties": {}})

    async def create_table(self, request: Request) -> Response:
        absent = dict.fromkeys(("location", "partition-spec", "write-order"))
        expected = CreateTableRequest.model_validate({**absent, **await request.json()})
        name = (*_namespace(request), expected.name)
        with self._lock:
            if self._catalog.table_exists(name):
                raise TableAlreadyExistsError("the table is there")
            make: Any = self._catalog._create_staged_table if expected.stage_create else self._catalog.create_table
            more = {"partition_spec": expected.partition_spec} if expected.partition_spec else {}
            return _answer(make(name, expected.table_schema, expected.location, properties=expected.properties, **more))

    async def load_table(self, request: Request) -> Response:
        return _answer(self._catalog.load_table((*_namespace(request), request.path_params["table"])))

    async def commit_table(self, request: Request) -> Response:
        expected = CommitTableRequest.model_validate_json(await request.body())
        name = (*_namespace(request), request.path_params["table"])
        named = cast("Table", SimpleNamespace(name=lambda: name))  # nothing else of it is looked at
        with self._lock:
            self._catalog.commit_table(named, expected.requirements, expected.updates)
            return _answer(self._catalog.load_table(name))


def _namespace(request: Request) -> tuple[str, ...]:
    return tuple(request.path_params["namespace"].split("\x1f"))


def _answer(table: Table) -> Response:
    validate = TableResponse.model_validate({"metadata": table.metadata, "metadata-location": table.metadata_location})
    return Response(validate.model_dump_json(by_alias=True), media_type="application/json")


def _refuse(request: Request, error: Exception) -> Response:
    code = _CODES[type(error)]
    return JSONResponse({"error": {"message": str(error), "type": type(error).__name__, "code": code}}, code)


def application(options: dict[str, str]) -> Starlette:
    """The server."""
    own = Routes(options)
    tables = "/v1/namespaces/{namespace}/tables"
    routes = [
        Route("/v1/config", own.config),
        Route("/v1/namespaces", own.create_namespace, methods=["POST"]),
        Route("/v1/namespaces/{namespace}", own.load_namespace),
        Route(tables, own.create_table, methods=["POST"]),
        Route(tables + "/{table}", own.load_table),
        Route(tables + "/{table}", own.commit_table, methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(_CODES, _refuse))


def main() -> None:
    """Serve the catalog of the options given, until standard input ends."""
    import uvicorn

    from tests.peers.lossy_proxy import serve_forever

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(json.loads(sys.argv[1])), log_level="error"))
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    serve_forever(listening.getsockname()[1])


if __name__ == "__main__":
    main()
