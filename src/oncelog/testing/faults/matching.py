"""Matches requests for a fault: by API, client, transactional id, group and topic, all that are given."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oncelog.handlers.registry import APIS

if TYPE_CHECKING:
    from oncelog.handlers.api import Api
    from oncelog.handlers.broker.context import Context

API_NAMES: Final = {api.name for api in APIS}


@dataclass(frozen=True)
class Match:
    """The properties a request must have; None matches any."""

    apis: frozenset[str] | None = None
    client_id: str | None = None
    transactional_id: str | None = None
    group_id: str | None = None
    topic: str | None = None

    def fits(self, api: Api, request: Any, context: Context) -> bool:
        """True if ``request`` has all properties."""
        if self.apis is not None and api.name not in self.apis:
            return False
        if self.client_id is not None and context.client_id != self.client_id:
            return False
        if self.transactional_id is not None and self.transactional_id not in transactional_ids(request):
            return False
        if self.group_id is not None and self.group_id not in _group_ids(request):
            return False
        return self.topic is None or self.topic in topics_of(request, context)

    def __str__(self) -> str:
        apis = "any request" if self.apis is None else " or ".join(sorted(self.apis))
        given = [
            f"{name}={value!r}"
            for name, value in (
                ("client_id", self.client_id),
                ("transactional_id", self.transactional_id),
                ("group_id", self.group_id),
                ("topic", self.topic),
            )
            if value is not None
        ]
        return f"{apis} with {', '.join(given)}" if given else apis


def api_names(api: str | Iterable[str] | None) -> frozenset[str] | None:
    """The names as a set. Raises ValueError for an unknown API."""
    if api is None:
        return None
    names = frozenset([api] if isinstance(api, str) else api)
    for name in sorted(names - API_NAMES):
        near = difflib.get_close_matches(name, API_NAMES, 1, 0.5)
        raise ValueError(f"the broker has no API {name!r}" + (f": {near[0]!r}?" if near else ""))
    return names


def is_after(when: str) -> bool:
    if when not in ("before", "after"):
        raise ValueError(f"when={when!r}: a fault strikes 'before' or 'after' the request takes effect")
    return when == "after"


def transactional_ids(request: Any) -> Iterator[str]:
    """The transactional ids in a request; "" without one."""
    yield str(getattr(request, "transactional_id", None) or getattr(request, "v3_and_below_transactional_id", ""))
    for transaction in getattr(request, "transactions", ()):
        yield getattr(transaction, "transactional_id", "")


def _group_ids(request: Any) -> Iterator[str]:
    yield getattr(request, "group_id", None) or ""
    for group in getattr(request, "groups", ()):
        yield group if isinstance(group, str) else getattr(group, "group_id", "")


def topics_of(request: Any, context: Context) -> Iterator[str]:
    """Names of the topics in any array of a request; topic ids are resolved by the broker's metadata."""
    for field in getattr(request, "__slots__", ()):
        value = getattr(request, field)
        for entry in value if isinstance(value, list) else ():
            name = getattr(entry, "name", None) or getattr(entry, "topic", None)
            topic_id = getattr(entry, "topic_id", None)
            if isinstance(name, str):
                yield name
            elif topic_id is not None and (topic := context.cluster.image.topic_of_id(topic_id)) is not None:
                yield topic.name
