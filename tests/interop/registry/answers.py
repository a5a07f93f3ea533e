"""``python -m tests.interop.registry.answers``: sends our registry and Apicurio's the same requests, one after another.
Both answers are written into `docs/internals/registry-answers.md`, with the reason of each difference."""

from __future__ import annotations

import http.client
import json
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from oncelog.testing import Broker
from tests.peers.apicurio import apicurio

PAGE: Final = Path(__file__).parents[3] / "docs" / "internals" / "registry-answers.md"
MARK: Final = "<!-- written by python -m tests.interop.registry.answers -->"
_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_SHOWN: Final = 60

FIRST: Final = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
SECOND: Final = FIRST.replace("]}", ',{"name":"note","type":"string","default":""}]}')
WRONG: Final = FIRST.replace("long", "string")
LINE: Final = '{"type":"record","name":"Line","fields":[{"name":"order","type":"Order"}]}'
PROTO: Final = 'syntax = "proto3";\nmessage Item {\n  string sku = 1;\n}\n'
OBJECT: Final = '{"type":"object","properties":{"x":{"type":"integer"}}}'

_DEFAULTS: Final = "Apicurio's default level is NONE; ours and Confluent's is BACKWARD"
_FULL: Final = "we add version and GUID, as newer registries of Confluent do"
_GUID: Final = "we add GUID, type, time and `deleted`, as newer registries of Confluent do"
_NO_ROUTE: Final = "Apicurio lacks the route"
_NO_MODES: Final = "Apicurio has no modes"
_CONFIG: Final = "Apicurio answers the level in force; we answer 40408, as Confluent's registry"
_CODES: Final = "the status is the code's first digits, as in Confluent's registry"
_FRAMEWORK: Final = "Apicurio's code is 0 where its framework answers"
_VERSIONS: Final = "Apicurio takes a malformed version for an absent one"


class Case(NamedTuple):
    request: str
    """Method and target."""
    body: Any = None
    label: str = ""
    """A name of the body, for the page."""
    why: str = ""
    """Why the answers differ; empty where they are the same."""


def _schema(text: str, label: str, kind: str = "", references: Any = None) -> tuple[Any, str]:
    document: dict[str, Any] = {"schema": text}
    if kind:
        document["schemaType"] = kind
    if references is not None:
        document["references"] = references
    return document, label


_REFERENCE: Final = [{"name": "Order", "subject": "orders", "version": 1}]
_LOST: Final = [{"name": "Order", "subject": "none", "version": 1}]
_ORDERS: Final = "/subjects/orders/versions"
_TEST: Final = "POST /compatibility/subjects"

CASES: Final = (
    Case("GET /schemas/types"),
    Case("GET /contexts", why="contexts are named `.`, as in Confluent's registry"),
    Case("GET /subjects"),
    Case("GET /config", why=_DEFAULTS),
    Case("PUT /config", {"compatibility": "BACKWARD"}, "BACKWARD"),
    Case("PUT /config", {"compatibility": "SOME"}, "SOME", "Apicurio's framework refuses the word as malformed"),
    Case(f"POST {_ORDERS}", *_schema(FIRST, "first schema"), why=_FULL),
    Case(f"POST {_ORDERS}", *_schema(FIRST, "the same"), why=_FULL),
    Case(f"POST {_ORDERS}", *_schema(SECOND, "with a new field"), why=_FULL),
    Case(f"POST {_ORDERS}", *_schema(WRONG, "incompatible"), why="Apicurio's code is the status"),
    Case(f"POST {_ORDERS}", *_schema('{"type":"nothing"}', "invalid")),
    Case(f"POST {_ORDERS}", *_schema(FIRST, "unknown type", "XML"), why="Apicurio takes an unknown type for Avro"),
    Case("POST /subjects/lines/versions", *_schema(LINE, "with a reference", "", _REFERENCE), why=_FULL),
    Case("POST /subjects/lines/versions", *_schema(LINE, "with a lost reference", "", _LOST)),
    Case("POST /subjects/items/versions", *_schema(PROTO, "Protobuf", "PROTOBUF"), why=_FULL),
    Case("POST /subjects/points/versions", *_schema(OBJECT, "JSON Schema", "JSON"), why=_FULL),
    Case("POST /subjects/other/versions", *_schema(FIRST, "a schema of another subject"), why=_FULL),
    Case("GET /subjects"),
    Case("GET /subjects?subjectPrefix=ord", why="Apicurio ignores the prefix"),
    Case(f"GET {_ORDERS}"),
    Case("GET /subjects/none/versions"),
    Case(f"GET {_ORDERS}/1", why=_GUID),
    Case(f"GET {_ORDERS}/latest", why=_GUID),
    Case(f"GET {_ORDERS}/-1", why=_GUID),
    Case(f"GET {_ORDERS}/9"),
    Case(f"GET {_ORDERS}/0", why=_VERSIONS),
    Case(f"GET {_ORDERS}/x", why=_VERSIONS),
    Case("GET /subjects/none/versions/1"),
    Case(f"GET {_ORDERS}/1/schema"),
    Case(f"GET {_ORDERS}/1/referencedby"),
    Case("GET /subjects/lines/versions/1", why=_GUID),
    Case("POST /subjects/orders", *_schema(FIRST, "registered"), why=_GUID),
    Case("POST /subjects/orders", *_schema(WRONG, "not registered")),
    Case("POST /subjects/none", *_schema(FIRST, "no subject")),
    Case("GET /schemas/ids/1", why=_GUID),
    Case("GET /schemas/ids/99"),
    Case("GET /schemas/ids/x", why=_FRAMEWORK),
    Case("GET /schemas/ids/1/schema", why=_NO_ROUTE),
    Case("GET /schemas/ids/1/subjects", why=_NO_ROUTE),
    Case("GET /schemas/ids/1/versions"),
    Case("GET /schemas/ids/99/versions"),
    Case("GET /schemas", why=_NO_ROUTE),
    Case(f"{_TEST}/orders/versions/latest", *_schema(SECOND, "compatible")),
    Case(f"{_TEST}/orders/versions/latest", *_schema(WRONG, "incompatible")),
    Case(
        f"{_TEST}/orders/versions/latest?verbose=true",
        *_schema(WRONG, "incompatible"),
        why="the reasons are `messages`, as at Confluent's",
    ),
    Case(f"{_TEST}/orders/versions", *_schema(WRONG, "incompatible")),
    Case(f"{_TEST}/none/versions/latest", *_schema(FIRST, "no subject"), why="a first version fits, as at Confluent's"),
    Case(f"{_TEST}/orders/versions/9", *_schema(FIRST, "no version")),
    Case("GET /config/orders", why=_CONFIG),
    Case("GET /config/orders?defaultToGlobal=true", why="Apicurio does not answer the level for all that is in force"),
    Case("PUT /config/orders", {"compatibility": "FULL"}, "FULL"),
    Case("GET /config/orders"),
    Case("DELETE /config/orders"),
    Case("GET /mode", why=_NO_MODES),
    Case("GET /mode/orders", why=_NO_MODES),
    Case("PUT /mode/orders", {"mode": "READWRITE"}, "READWRITE", _NO_MODES),
    Case("DELETE /mode/orders", why=_NO_MODES),
    Case("PUT /mode", {"mode": "SOME"}, "SOME", _NO_MODES),
    Case(f"DELETE {_ORDERS}/1"),
    Case(f"DELETE {_ORDERS}/2?permanent=true", why=_CODES),
    Case(f"DELETE {_ORDERS}/2"),
    Case(f"DELETE {_ORDERS}/2", why=_CODES),
    Case(f"GET {_ORDERS}/2"),
    Case(f"GET {_ORDERS}/2?deleted=true", why=_GUID),
    Case(f"GET {_ORDERS}?deleted=true"),
    Case(f"DELETE {_ORDERS}/2?permanent=true"),
    Case("DELETE /subjects/points?permanent=true", why=_CODES),
    Case("DELETE /subjects/points"),
    Case("DELETE /subjects/points"),
    Case("GET /subjects?deleted=true"),
    Case("DELETE /subjects/points?permanent=true"),
    Case("DELETE /subjects/none"),
    Case("GET /nothing", why=_FRAMEWORK),
    Case("PATCH /subjects", why=_FRAMEWORK),
)


def ask(url: str, case: Case) -> str:
    """The answer in short: its status, with the code of an error or the fields of a document."""
    method, target = case.request.split(" ")
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        body = None if case.body is None else json.dumps(case.body)
        connection.request(method, place.path + target, body, {"Content-Type": _TYPE})
        response = connection.getresponse()
        return _short(response.status, response.read())
    finally:
        connection.close()


def _short(status: int, body: bytes) -> str:
    try:
        document = json.loads(body)
    except ValueError:
        return f"{status}, no JSON"
    if isinstance(document, dict):
        if "error_code" in document:
            return f"{status}, error {document['error_code']}"
        shown = {name: value for name, value in document.items() if value not in (None, [])}
        texts = [
            f"{name} {value}" if isinstance(value, bool) or name.startswith("compat") else name
            for name, value in sorted(shown.items())
        ]
        return f"{status}: {', '.join(texts)}"
    if isinstance(document, list):
        if document and isinstance(document[0], dict):
            return f"{status}: {len(document)} × {', '.join(sorted(document[0]))}"
        document = sorted(document)
    return f"{status}: {json.dumps(document)}"[:_SHOWN]


def both_answers() -> list[tuple[Case, str, str]]:
    """Each case with our answer and Apicurio's."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Broker(registry=True) as broker,
        apicurio(Path(directory)) as url,
    ):
        return [(case, ask(broker.registry_url, case), ask(url, case)) for case in CASES]


def table(answers: list[tuple[Case, str, str]]) -> str:
    lines = ["| request | oncelog | Apicurio | why they differ |", "|---|---|---|---|"]
    for case, ours, theirs in answers:
        request = f"`{case.request}`" + (f" ({case.label})" if case.label else "")
        lines.append(f"| {request} | {ours} | {'same' if ours == theirs else theirs} | {case.why} |")
    return "\n".join(lines) + "\n"


def unexplained(answers: list[tuple[Case, str, str]]) -> list[str]:
    """Differences without a reason, and reasons without a difference."""
    wrong = [entry for entry in answers if (entry[1] == entry[2]) != (not entry[0].why)]
    return [f"{case.request} ({case.label}): {ours} and {theirs}: {case.why!r}" for case, ours, theirs in wrong]


def main() -> None:
    answers = both_answers()
    head = PAGE.read_text("utf-8").partition(MARK)[0]
    PAGE.write_text(f"{head}{MARK}\n{table(answers)}", "utf-8")
    for problem in unexplained(answers):
        print(problem)


if __name__ == "__main__":
    main()
