"""``Api``, a row of the registry of APIs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from oncelog.base.acls import CLUSTER_NAME as CLUSTER_NAME
from oncelog.base.acls import Operation as Operation
from oncelog.base.acls import ResourceType as ResourceType
from oncelog.base.errors import ErrorCode


class Api(NamedTuple):
    """An API: its versions, its handler, and the right it needs.

    ``handler`` is imported at the first request. A module of ``oncelog.handlers`` with a single API has
    ``handle(request, context)`` and ``ERRORS`` (error code → when). With several, the function is named too:
    ``groups.membership:join``, with ``JOIN_ERRORS``. A module outside this package has its full name.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    handler: str
    operation: Operation
    resource: ResourceType
    advertised_min_version: int | None = None
    """The lowest version in ApiVersions, if it is not the lowest one implemented (Produce only)."""

    @property
    def module(self) -> str:
        """The module of its messages."""
        return re.sub("(?<=.)(?=[A-Z])", "_", self.name).lower()

    def load_handler(self) -> Callable[[Any, Any], Any]:
        module, function = self._place()
        handle: Callable[[Any, Any], Any] = getattr(import_module(module), function or "handle")
        return handle

    def load_errors(self) -> Mapping[ErrorCode, str]:
        """Import the errors that the API answers, with their causes."""
        module, function = self._place()
        table = f"{function.upper()}_ERRORS" if function else "ERRORS"
        errors: Mapping[ErrorCode, str] = getattr(import_module(module), table)
        return errors

    def _place(self) -> tuple[str, str]:
        """The handler's module and function ("" for ``handle``)."""
        module, _, function = self.handler.partition(":")
        return module if module.startswith("oncelog.") else f"oncelog.handlers.{module}", function
