"""A question as a function, and the messages it is made of."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests.peers.clients.sweep.wire import NOWHERE

NO_UUID: Final = bytes(16)
BOGUS: Final = 987_654
"""A producer id that nobody has."""


@dataclass
class Known:
    """Ids of topics, as the broker has answered them."""

    topic_ids: dict[str, bytes] = field(default_factory=dict)


Question = Callable[[int, Known], Any]
"""A request for a version and what is known; None where the version cannot ask it."""


def make(api: str, **fields: Any) -> Any:
    """A message of an API by the name of its class: ``make("fetch.FetchRequest", ...)``."""
    module, _, name = api.partition(".")
    return getattr(importlib.import_module(f"oncelog.wire.messages.{module}"), name)(**fields)


def named(names: tuple[str, ...], known: Known, since: bool) -> list[dict[str, Any]]:
    """Topics by name, or by id where the version has ids."""
    if not since:
        return [{"name": name} for name in names]
    return [{"topic_id": known.topic_ids.get(name, NOWHERE)} for name in names]
