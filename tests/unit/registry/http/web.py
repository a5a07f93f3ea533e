"""The registry's application on a loop of its own, asked without sockets; its topic is a list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

from oncelog.registry.http.application import Access, Application
from oncelog.registry.service import Registry
from oncelog.registry.topic import PenLost, SchemasTopic
from oncelog.registry.topic_records import TopicRecord
from oncelog.web.logins import NoLogin
from tests.unit.registry.fake_formats import FakeFormats
from tests.unit.registry.machine import Machine

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class FakeTopic:
    """The store of a machine instead of a topic. ``lose_pen`` lets the next appends fail, as if others wrote."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.store = self.machine.store
        self.lose_pen = 0
        self.is_reading = True

    async def hold_pen(self) -> None:
        await asyncio.sleep(0)

    async def append(self, records: Sequence[TopicRecord]) -> None:
        await asyncio.sleep(0)
        if self.lose_pen:
            self.lose_pen -= 1
            raise PenLost
        for record in records:
            self.machine.append(record)


class Answer(NamedTuple):
    status: int
    text: str
    headers: Mapping[str, str]

    @property
    def document(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> int:
        return int(self.document["error_code"])


class Web:
    def __init__(self, access: Access | None = None, *, read_only: bool = False) -> None:
        self._access = access or Access(NoLogin())
        self.topic = FakeTopic()
        self.formats = FakeFormats()
        self.registry = Registry(cast("SchemasTopic", self.topic), self.formats, "cluster", read_only=read_only)
        self._runner = asyncio.Runner()
        self._app: Application | None = None

    def __enter__(self) -> Self:
        async def make() -> Application:
            return Application(self.registry, self._access)

        self._app = self._runner.run(make())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.registry.close()
        self._runner.close()

    def ask(self, method: str, address: str, body: object = None, **headers: str) -> Answer:
        """Send a request. ``body``: bytes as they are, else as JSON; headers with `_` for `-`."""
        return self._runner.run(self._ask(method, address, body, headers))

    def register(self, subject: str, text: str, **fields: object) -> Answer:
        return self.ask("POST", f"/subjects/{subject}/versions", {"schema": text, **fields})

    def together(self, *requests: tuple[str, str, object]) -> list[Answer]:
        """Send requests at the same time."""

        async def run() -> list[Answer]:
            return await asyncio.gather(*(self._ask(method, path, body, {}) for method, path, body in requests))

        return self._runner.run(run())

    def take_large_turns(self) -> None:
        """As requests do whose bodies do not arrive."""
        assert self._app is not None
        large = self._app._large_bodies
        while not large.locked():
            self._runner.run(large.acquire())

    async def _ask(self, method: str, address: str, body: object, headers: Mapping[str, str]) -> Answer:
        path, _, query = address.partition("?")
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        given = {"host": "localhost", "content_type": CONTENT_TYPE, "content_length": str(len(data)), **headers}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
        }
        sent: list[Any] = []
        has_body = asyncio.Event()

        async def receive() -> dict[str, object]:
            if has_body.is_set():
                await asyncio.get_running_loop().create_future()  # The client stays.
            has_body.set()
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        assert self._app is not None
        await self._app(scope, receive, send)
        text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
        return Answer(sent[0]["status"], text, {name.decode(): value.decode() for name, value in sent[0]["headers"]})
