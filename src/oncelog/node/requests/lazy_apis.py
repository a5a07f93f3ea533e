"""The APIs of this broker, imported when needed: finds the handler for an API key and version."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any

from oncelog.base.errors import PeerError
from oncelog.handlers import registry
from oncelog.handlers.api import Api
from oncelog.handlers.broker.context import Context
from oncelog.handlers.broker.waits import Steps

if TYPE_CHECKING:
    from oncelog.handlers.broker.ports import ClusterView
    from oncelog.wire.message import Message

# A handler as the node drives it: steps that return the response, None without one.
Handle = Callable[[Any, Context], "Steps[Message | None]"]


def as_steps(handle: Callable[[Any, Context], Any]) -> Handle:
    """A handler as steps, even if its module defines it as a plain function because it never waits."""
    if isgeneratorfunction(handle):
        return handle

    def steps(request: Any, context: Context) -> Steps[Message | None]:
        response: Message | None = handle(request, context)
        yield from ()
        return response

    return steps


class LoadedApi:
    """An API with its modules, imported by its first request: unused APIs do not slow the start."""

    __slots__ = ("api", "handle", "max_version", "min_version", "request_type")

    def __init__(self, api: Api) -> None:
        self.api = api
        self.min_version, self.max_version = api.min_version, api.max_version
        messages = import_module(f"oncelog.wire.messages.{api.module}")
        self.request_type: type[Message] = getattr(messages, f"{api.name}Request")
        self.handle: Handle = as_steps(api.load_handler())


class LoadedApis:
    """The APIs requested so far. Versions that Apache Kafka 4 dropped have a table of their own, if
    ``oncelog.legacy.protocol`` is set.
    """

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._loaded: dict[int, LoadedApi] = {}
        self._legacy: dict[int, LoadedApi] = {}
        self.around: Callable[[Api, Handle], Handle] | None = None
        """Wraps every handler, to inject faults in tests; set before the first request."""

    def find(self, key: int, version: int) -> LoadedApi | None:
        """The API that serves a version; None if none does. Raises PeerError for an unknown key."""
        loaded = self._loaded.get(key)
        if loaded is None:
            api = registry.BY_KEY.get(key)
            if api is None:
                raise PeerError(f"request for API {key}, which this broker does not support")
            loaded = self._loaded[key] = self._load(api)
        if loaded.min_version <= version <= loaded.max_version:
            return loaded
        older = self._find_legacy(key) if version < loaded.min_version else None
        return older if older is not None and older.min_version <= version <= older.max_version else None

    def _find_legacy(self, key: int) -> LoadedApi | None:
        """The API's versions that Apache Kafka 4 dropped, if they are enabled."""
        loaded = self._legacy.get(key)
        if loaded is None and self._cluster.config.get("oncelog.legacy.protocol"):
            from oncelog.handlers.legacy_registry import LEGACY_BY_KEY

            api = LEGACY_BY_KEY.get(key)
            if api is not None:
                loaded = self._legacy[key] = self._load(api)
        return loaded

    def _load(self, api: Api) -> LoadedApi:
        loaded = LoadedApi(api)
        if self.around is not None:
            loaded.handle = self.around(api, loaded.handle)
        return loaded
