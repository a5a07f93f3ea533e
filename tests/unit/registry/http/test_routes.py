"""Every route: what it answers, and by which code it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.registry.http.routes import _ROUTES, MethodNotAllowed, match
from oncelog.registry.transfer import ImportRefused, exported, import_records
from tests.unit.registry.http.web import Web
from tests.unit.registry.machine import Machine
from tests.unit.registry.test_registration import A, B, C


@pytest.fixture
def web() -> Iterator[Web]:
    """A registry with a subject of two versions, one that refers to it, and one in a context."""
    with Web() as web:
        web.register("a%2Fb", A)
        web.register("a%2Fb", B, metadata={"properties": {"team": "x"}})
        web.register("c", C, references=[{"name": "a", "subject": "a/b", "version": 2}])
        web.register(":.x:d", A)
        yield web


READS: list[tuple[str, Any]] = [
    ("/", {}),
    ("/subjects", [":.x:d", "a/b", "c"]),
    ("/subjects/", [":.x:d", "a/b", "c"]),
    ("/subjects?subjectPrefix=a", ["a/b"]),
    ("/subjects?subjectPrefix=:*:d", [":.x:d"]),
    ("/subjects?offset=1&limit=1", ["a/b"]),
    ("/contexts/.x/subjects", [":.x:d"]),
    ("/contexts/:.x:/subjects/d/versions", [1]),
    ("/contexts/.x/schemas/ids/1/subjects", [":.x:d"]),
    ("/subjects/a%2Fb/versions", [1, 2]),
    ("/subjects/c/versions/latest/schema", {"c": 1}),
    ("/subjects/a%2Fb/versions/2/referencedby", [3]),
    ("/subjects/d/versions", {"error_code": 40401, "message": "Subject 'd' not found."}),
    ("/schemas/types", ["JSON", "PROTOBUF", "AVRO"]),
    ("/schemas/ids/2/schema", {"b": 1}),
    ("/schemas/ids/2/subjects", ["a/b"]),
    ("/schemas/ids/2/versions", [{"subject": "a/b", "version": 2}]),
    ("/contexts", [".", ".x"]),
    ("/contexts?contextPrefix=.x", [".x"]),
    ("/config", {"compatibilityLevel": "BACKWARD"}),
    ("/config/c?defaultToGlobal=true", {"compatibilityLevel": "BACKWARD"}),
    ("/mode", {"mode": "READWRITE"}),
    ("/mode/c?defaultToGlobal=true", {"mode": "READWRITE"}),
    (
        "/v1/metadata/id",
        {
            "scope": {
                "path": [],
                "clusters": {"kafka-cluster": "cluster", "schema-registry-cluster": "schema-registry"},
            },
            "id": "",
        },
    ),
    ("/health", {"status": "ok"}),
]


@pytest.mark.parametrize(("address", "document"), READS)
def test_a_read(web: Web, address: str, document: object) -> None:
    assert web.ask("GET", address).document == document


REFUSALS = [
    ("GET", "/nothing", 404),
    ("GET", "/subjects/a/b/versions", 404),
    ("GET", "/schemas/ids/x", 404),
    ("GET", "/schemas/ids/99999999999999999999", 404),
    ("GET", "/schemas/ids/99", 40403),
    ("GET", "/schemas/ids/99/versions", 40403),
    ("GET", "/schemas/guids/x", 40403),
    ("GET", "/subjects/x/versions/1", 40401),
    ("GET", "/subjects/c/versions/9", 40402),
    ("GET", "/subjects/c/versions/0", 42202),
    ("GET", "/subjects/c/versions/x", 42202),
    ("GET", "/subjects/c/metadata?key=a&value=b", 40403),
    ("GET", "/subjects/x/metadata?key=a&value=b", 40401),
    ("GET", "/config/c", 40408),
    ("GET", "/mode/c", 40409),
    ("DELETE", "/config/c", 40401),
    ("DELETE", "/mode/c", 40401),
    ("DELETE", "/subjects/x", 40401),
    ("DELETE", "/subjects/c?permanent=true", 40405),
    ("DELETE", "/subjects/c/versions/1?permanent=true", 40407),
    ("DELETE", "/subjects/a%2Fb/versions/2", 42206),
    ("DELETE", "/contexts/.x", 42211),
    ("GET", "/subjects?limit=x", 404),
    ("GET", "/subjects?" + "&".join("a=b" for _ in range(200)), 400),
]


@pytest.mark.parametrize(("method", "address", "code"), REFUSALS)
def test_a_refusal(web: Web, method: str, address: str, code: int) -> None:
    answer = web.ask(method, address)
    assert (answer.code, answer.status) == (code, int(str(code)[:3]))


BAD_BODIES = [
    ("POST", "/subjects/s/versions", b"", 400),
    ("POST", "/subjects/s/versions", b"[]", 400),
    ("POST", "/subjects/s/versions", b"[" * 10_000, 400),
    ("POST", "/subjects/s/versions", {"schema": 1}, 42201),
    ("POST", "/subjects/s/versions", {"schema": A, "schemaType": "XML"}, 42201),
    ("POST", "/subjects/s/versions", {"schema": A, "references": [{}]}, 42201),
    ("POST", "/subjects/s/versions", {"schema": A, "metadata": {"tags": 1}}, 42201),
    ("POST", "/subjects/s/versions", {"schema": A, "ruleSet": {"domainRules": [{"name": "a"}]}}, 42210),
    ("POST", "/subjects/s/versions", {"schema": A, "id": 2**40}, 422),
    ("POST", "/subjects/s/versions", {"schema": A, "version": "1"}, 422),
    ("POST", "/subjects/__GLOBAL/versions", {"schema": A}, 42208),
    ("PUT", "/config", {"compatibility": "SOMEHOW"}, 42203),
    ("PUT", "/config", {"normalize": "yes"}, 422),
    ("PUT", "/config", {"defaultMetadata": {"properties": {"a": 1}}}, 422),
    ("PUT", "/config", {"alias": {}}, 422),
    ("PUT", "/mode", {"mode": "SOMEHOW"}, 42204),
    ("PUT", "/mode", {"mode": 1}, 42204),
    ("POST", "/compatibility/subjects/c/versions/9", {"schema": A}, 40402),
]


@pytest.mark.parametrize(("method", "address", "body", "code"), BAD_BODIES)
def test_a_body_that_is_refused(web: Web, method: str, address: str, body: object, code: int) -> None:
    answer = web.ask(method, address, body)
    assert (answer.code, answer.status) == (code, int(str(code)[:3]))


def test_a_version_is_answered_with_its_id_its_guid_and_its_references(web: Web) -> None:
    version = web.ask("GET", "/subjects/c/versions/1").document
    assert {name: version[name] for name in ("subject", "version", "id", "schemaType", "schema", "deleted")} == {
        "subject": "c",
        "version": 1,
        "id": 3,
        "schemaType": "AVRO",
        "schema": C,
        "deleted": False,
    }
    assert version["references"] == [{"name": "a", "subject": "a/b", "version": 2}]
    by_guid = web.ask("GET", f"/schemas/guids/{version['guid']}").document
    assert by_guid["schema"] == C
    assert "subject" not in by_guid
    assert web.ask("GET", f"/schemas/guids/{version['guid']}/ids").document == [{"context": ".", "id": 3}]


def test_a_registration_is_answered_with_the_schema_only_if_the_registry_changed_it(web: Web) -> None:
    assert set(web.register("n", A).document) == {"id", "version", "guid"}
    web.ask("PUT", "/config/m", {"defaultMetadata": {"properties": {"k": "v"}}})
    assert web.register("m", A).document["metadata"] == {"properties": {"k": "v"}}


def test_a_schema_is_looked_up_and_compared(web: Web) -> None:
    assert (
        web.ask(
            "POST", "/subjects/c", {"schema": C, "references": [{"name": "a", "subject": "a/b", "version": 2}]}
        ).document["id"]
        == 3
    )
    assert web.ask("POST", "/subjects/c", {"schema": A}).code == 40403
    assert web.ask("POST", "/subjects/x", {"schema": A}).code == 40401
    path = "/compatibility/subjects/c/versions"
    assert web.ask("POST", path, {"schema": A}).document == {"is_compatible": True}
    bad = {"schema": '{"incompatible":1}'}
    for suffix in ("", "/latest", "/1"):
        answer = web.ask("POST", f"{path}{suffix}?verbose=true", bad)
        assert answer.document == {"is_compatible": False, "messages": ["it says so"]}
    assert web.ask("POST", f"{path}?verbose=True", {"schema": "{"}).document["is_compatible"] is False
    assert web.ask("POST", path, {"schema": "{"}).code == 42201


def test_metadata_find_the_latest_schema_that_has_them(web: Web) -> None:
    assert web.ask("GET", "/subjects/a%2Fb/metadata?key=team&value=x").document["version"] == 2


def test_all_schemas_are_listed_one_after_the_other(web: Web) -> None:
    listed = web.ask("GET", "/schemas").document
    assert [(schema["subject"], schema["version"]) for schema in listed] == [
        (":.x:d", 1),
        ("a/b", 1),
        ("a/b", 2),
        ("c", 1),
    ]
    assert [schema["version"] for schema in web.ask("GET", "/schemas?latestOnly=true&subjectPrefix=a").document] == [2]
    assert web.ask("GET", "/schemas?subjectPrefix=nothing").document == []


def test_deletion_shows_in_the_lists_that_ask_for_it(web: Web) -> None:
    assert web.ask("DELETE", "/subjects/c").document == [1]
    assert "c" not in web.ask("GET", "/subjects").document
    assert web.ask("GET", "/subjects?deletedOnly=true").document == ["c"]
    assert web.ask("GET", "/subjects/c/versions?deleted=true").document == [1]
    assert web.ask("GET", "/subjects/c/versions?deletedAsNegative=true&deleted=true").document == [-1]
    assert web.ask("GET", "/schemas/ids/3").document["deleted"] is True
    assert web.ask("DELETE", "/subjects/c").code == 40404
    assert web.ask("DELETE", "/subjects/c/versions/1").code == 40406
    assert web.ask("DELETE", "/subjects/c/versions/latest?permanent=true").code == 40402
    assert web.ask("DELETE", "/subjects/c/versions/1?permanent=true").document == 1


def test_config_and_mode_are_set_for_one_subject_and_for_all(web: Web) -> None:
    assert web.ask("PUT", "/config/c", {"compatibility": "full", "alias": "a/b"}).document == {
        "alias": "a/b",
        "compatibility": "FULL",
    }
    assert web.ask("GET", "/subjects/c/versions").document == [1, 2]
    assert web.ask("DELETE", "/config/c").document == {"compatibilityLevel": "FULL", "alias": "a/b"}
    assert web.ask("PUT", "/mode/c", {"mode": "readonly"}).document == {"mode": "readonly"}
    assert web.register("c", A).code == 42205
    assert web.ask("DELETE", "/mode/c").document == {"mode": "READONLY"}
    assert web.ask("DELETE", "/config").document == {"compatibilityLevel": "BACKWARD"}
    assert web.ask("DELETE", "/mode?recursive=true").status == 200


def test_a_text_in_another_form(web: Web) -> None:
    assert web.ask("GET", "/schemas/ids/1/schema?format=resolved").text == f"resolved:{A}"
    assert web.ask("GET", "/subjects/c/versions/1?format=serialized").document["schema"] == f"serialized:{C}"


def test_registrations_at_the_same_time_get_ids_of_their_own(web: Web) -> None:
    requests = [("POST", f"/subjects/n{number}/versions", {"schema": f'{{"n":{number}}}'}) for number in range(20)]
    ids = [answer.document["id"] for answer in web.together(*requests)]
    assert sorted(ids) == list(range(4, 24))


def test_a_registration_is_decided_again_when_another_instance_wrote(web: Web) -> None:
    web.topic.lose_pen = 3
    assert web.register("n", '{"n":1}').document["id"] == 4
    web.topic.lose_pen = 1000
    assert web.register("n", '{"n":2}').code == 50002


def test_health_fails_once_the_topic_is_read_no_further(web: Web) -> None:
    web.topic.is_reading = False
    assert (web.ask("GET", "/health").status, web.ask("GET", "/health").document) == (503, {"status": "failed"})


def test_every_pattern_of_the_table_is_found() -> None:
    for method, pattern, handler in _ROUTES:
        path = pattern.format(subject="a%2Fb", version="1", id="7", guid="g", context=".c")
        route = match(method, f"/{path}".encode())
        assert route is not None
        assert route.handler is handler
    with pytest.raises(MethodNotAllowed, match="GET, POST"):
        match("PATCH", b"/")


def test_the_reason_of_a_refused_import_is_not_that_of_the_topic() -> None:
    other = Machine()
    other.register("a", A)
    with Web() as web:
        web.register("a", B)
        records = list(exported(other.store))
        with pytest.raises(ImportRefused, match=r"^version 1 of a is here another schema"):
            asyncio.run(web.registry.change(lambda: import_records(web.topic.store, records)))
