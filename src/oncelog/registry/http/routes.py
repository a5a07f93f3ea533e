"""The table of routes. A path is split at its slashes before it is decoded: subjects may have slashes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from oncelog.registry.http import reading_routes as reading
from oncelog.registry.http import writing_routes as writing
from oncelog.registry.http.call import Call
from oncelog.registry.subjects import DEFAULT_CONTEXT

Handler = Callable[[Call], Awaitable[object]]

_ROUTES: Final[Sequence[tuple[str, str, Handler]]] = (
    ("GET", "", reading.root),
    ("POST", "", reading.root),
    ("GET", "subjects", reading.list_subjects),
    ("POST", "subjects/{subject}", writing.look_up_schema),
    ("DELETE", "subjects/{subject}", writing.delete_subject),
    ("GET", "subjects/{subject}/metadata", reading.get_by_metadata),
    ("GET", "subjects/{subject}/versions", reading.list_versions),
    ("POST", "subjects/{subject}/versions", writing.register_schema),
    ("GET", "subjects/{subject}/versions/{version}", reading.get_version),
    ("DELETE", "subjects/{subject}/versions/{version}", writing.delete_version),
    ("GET", "subjects/{subject}/versions/{version}/schema", reading.get_version_text),
    ("GET", "subjects/{subject}/versions/{version}/referencedby", reading.get_referrers),
    ("GET", "schemas", reading.list_schemas),
    ("GET", "schemas/types", reading.get_types),
    ("GET", "schemas/ids/{id}", reading.get_by_id),
    ("GET", "schemas/ids/{id}/schema", reading.get_text_by_id),
    ("GET", "schemas/ids/{id}/subjects", reading.get_subjects_of_id),
    ("GET", "schemas/ids/{id}/versions", reading.get_versions_of_id),
    ("GET", "schemas/guids/{guid}", reading.get_by_guid),
    ("GET", "schemas/guids/{guid}/ids", reading.get_ids_of_guid),
    ("GET", "config", reading.get_config),
    ("PUT", "config", writing.put_config),
    ("DELETE", "config", writing.delete_config),
    ("GET", "config/{subject}", reading.get_config),
    ("PUT", "config/{subject}", writing.put_config),
    ("DELETE", "config/{subject}", writing.delete_config),
    ("GET", "mode", reading.get_mode),
    ("PUT", "mode", writing.put_mode),
    ("DELETE", "mode", writing.delete_mode),
    ("GET", "mode/{subject}", reading.get_mode),
    ("PUT", "mode/{subject}", writing.put_mode),
    ("DELETE", "mode/{subject}", writing.delete_mode),
    ("POST", "compatibility/subjects/{subject}/versions", writing.test_subject),
    ("POST", "compatibility/subjects/{subject}/versions/{version}", writing.test_version),
    ("GET", "contexts", reading.list_contexts),
    ("DELETE", "contexts/{context}", writing.delete_context),
    ("GET", "v1/metadata/id", reading.get_cluster_id),
    ("GET", "v1/metadata/version", reading.get_server_version),
)


class Match(NamedTuple):
    handler: Handler
    parameters: dict[str, str]
    context: str


class MethodNotAllowed(Exception):
    """The path has other methods; they are the argument."""


def _table() -> dict[int, list[tuple[Sequence[str], dict[str, Handler]]]]:
    patterns: dict[str, dict[str, Handler]] = {}
    for method, pattern, handler in _ROUTES:
        patterns.setdefault(pattern, {})[method] = handler
    table: dict[int, list[tuple[Sequence[str], dict[str, Handler]]]] = {}
    for pattern, handlers in patterns.items():
        parts = pattern.split("/") if pattern else []
        table.setdefault(len(parts), []).append((parts, handlers))
    return table


_BY_LENGTH: Final = _table()


def match(method: str, raw_path: bytes) -> Match | None:
    """The route of a request, None for an unknown path. Raises MethodNotAllowed."""
    parts = raw_path.decode("ascii", "replace").strip("/").split("/")
    parts = [] if parts == [""] else parts
    context = DEFAULT_CONTEXT
    if len(parts) > 2 and parts[0] == "contexts":
        name = unquote(parts[1]).strip(":")
        context = name if name.startswith(".") else f".{name}"
        parts = parts[2:]
    for pattern, handlers in _BY_LENGTH.get(len(parts), ()):
        parameters = _parameters(pattern, parts)
        if parameters is not None:
            handler = handlers.get("GET" if method == "HEAD" else method)
            if handler is None:
                raise MethodNotAllowed(", ".join(handlers))
            return Match(handler, parameters, context)
    return None


def _parameters(pattern: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    parameters = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{"):
            parameters[expected[1:-1]] = unquote(part)
        elif expected != part:
            return None
    return parameters
