"""A registry's client: what it asks, what it keeps, how it goes on when servers fail, and its bounds."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from oncelog.schemas.client import http_connections
from oncelog.schemas.client.errors import NotRegistered, RegistryConfigError, RegistryRefused, RegistryUnavailable
from oncelog.schemas.client.registry import Registry, SubjectVersion, context_of
from oncelog.schemas.client.settings import parse_settings
from oncelog.schemas.formats.references import dependencies_of
from oncelog.schemas.schema import Reference, RegisteredSchema, Schema, SchemaType
from tests.certificates import Authority
from tests.unit.schemas.fake_registry import Answers, absent, fake_registry, raw_server

GUID = UUID("12345678-1234-5678-1234-567812345678")
STRING = Schema('"string"')


class Clock:
    """Time that passes only while the client waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.waits.append(wait_s)
        self.now_s += wait_s


def client(url: str, clock: Clock | None = None, **properties: str) -> Registry:
    clock = clock or Clock()
    return Registry(url, {name.replace("_", "."): value for name, value in properties.items()}, sleep=clock.sleep)


def constant(status: int, document: Any) -> Answers:
    return lambda _method, _target, _body: (status, document)


def test_a_schema_is_asked_for_once() -> None:
    with fake_registry(constant(200, {"schema": '"string"'})) as server, client(server.url) as registry:
        assert registry.schema(7) == registry.schema("7") == STRING
        assert registry.schema(7, ":.other:") == STRING
        assert registry.schema(GUID) == registry.schema(str(GUID)) == STRING
        assert [target for _, target in server.requests] == [
            "/schemas/ids/7",
            "/schemas/ids/7?subject=%3A.other%3A",
            f"/schemas/guids/{GUID}",
        ]


def test_an_absent_id_is_not_asked_for_again_until_it_may_have_come() -> None:
    clock = Clock()
    with fake_registry(constant(*absent())) as server, Registry(server.url, clock=clock) as registry:
        for _ in range(3):
            with pytest.raises(NotRegistered, match="Schema 5 not found"):
                registry.schema(5)
        assert len(server.requests) == 1
        clock.now_s += 61
        with pytest.raises(NotRegistered):
            registry.schema(5)
        assert len(server.requests) == 2


def test_what_no_registry_has_is_absent_whatever_the_answer() -> None:
    def answers(_method: str, target: str, _body: Any) -> tuple[int, Any]:
        if target == "/schemas/ids/8":
            return 200, {"schema": "x", "schemaType": "XML"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}  # as without such a route

    with fake_registry(answers) as server, Registry(server.url) as registry:
        for schema_id, message in (
            (2**31, "ids of registries end at"),
            (GUID, "HTTP 404"),
            (8, "'XML', which is not supported"),
        ):
            for _ in range(2):
                with pytest.raises(NotRegistered, match=message):
                    registry.schema(schema_id)
        assert len(server.requests) == 2
        with pytest.raises(RegistryRefused) as refusal:
            registry.schema(2**31 - 1)
        assert not isinstance(refusal.value, NotRegistered)


def test_a_version_with_everything() -> None:
    document = {
        "subject": "a/b value",
        "version": 3,
        "id": 9,
        "guid": str(GUID),
        "schemaType": "PROTOBUF",
        "schema": "message A {}",
        "references": [{"name": "b.proto", "subject": "b", "version": 1}],
        "metadata": {"properties": {"owner": "me"}},
        "ruleSet": None,
    }
    schema = Schema(
        "message A {}", SchemaType.PROTOBUF, (Reference("b.proto", "b", 1),), {"properties": {"owner": "me"}}
    )
    with fake_registry(constant(200, document)) as server, client(server.url) as registry:
        expected = RegisteredSchema("a/b value", 3, 9, GUID, schema)
        assert registry.version("a/b value") == registry.version("a/b value", 3) == expected
        assert registry.lookup("a/b value", schema) == expected
        assert server.requests == [
            ("GET", "/subjects/a%2Fb%20value/versions/latest"),
            ("GET", "/subjects/a%2Fb%20value/versions/3"),
            ("POST", "/subjects/a%2Fb%20value"),
        ]


def test_a_lookup_without_a_format_keeps_that_of_the_question() -> None:
    answer = {"subject": "s", "version": 1, "id": 1, "schema": "{}"}
    with fake_registry(constant(200, answer)) as server, client(server.url) as registry:
        schema = Schema("{}", SchemaType.JSON)
        assert registry.lookup("s", schema).schema == schema


def test_registering_sends_the_whole_schema() -> None:
    bodies = []

    def answers(_method: str, _target: str, body: Any) -> tuple[int, Any]:
        bodies.append(body)
        return 200, {"id": 4}

    schema = Schema("{}", SchemaType.JSON, (Reference("x.json", "x", 2),))
    with fake_registry(answers) as server, client(server.url) as registry:
        assert registry.register("s", schema, normalize=True) == 4
        assert server.requests == [("POST", "/subjects/s/versions?normalize=true")]
    references = [{"name": "x.json", "subject": "x", "version": 2}]
    assert bodies == [{"schema": "{}", "schemaType": "JSON", "references": references}]


def test_lists() -> None:
    def answers(_method: str, target: str, _body: Any) -> tuple[int, Any]:
        if target.startswith("/schemas"):
            return 200, [{"subject": "s", "version": 1}]
        return 200, [1, 2] if target.endswith("versions") else ["s"]

    with fake_registry(answers) as server, client(server.url) as registry:
        assert registry.subjects(":.c:") == ["s"]
        assert registry.versions("s") == [1, 2]
        assert registry.subject_versions(8) == [SubjectVersion("s", 1)]
        assert server.requests[0] == ("GET", "/subjects?subjectPrefix=%3A.c%3A")


def test_the_login_is_in_a_header_and_in_no_text() -> None:
    with fake_registry(constant(401, {"error_code": 40101, "message": "no"})) as server:
        url = server.url.replace("//", "//alice:s%3Acret@")
        for registry in (client(url), client(server.url, basic_auth_user_info="alice:s:cret")):
            with registry, pytest.raises(RegistryRefused) as refusal:
                registry.schema(1)
            assert "cret" not in str(refusal.value) + repr(registry.settings)
            assert server.headers[-1]["Authorization"] == "Basic YWxpY2U6czpjcmV0"
        with client(server.url, bearer_auth_token="t0ken") as registry, pytest.raises(RegistryRefused):
            registry.schema(1)
        assert server.headers[-1]["Authorization"] == "Bearer t0ken"


def test_tls_with_a_client_certificate(tmp_path: Path) -> None:
    authority = Authority()
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca))
    context.load_cert_chain(authority.broker().write(tmp_path, "server"))
    context.verify_mode = ssl.CERT_REQUIRED
    certificate = str(authority.client().write(tmp_path, "client"))
    with fake_registry(constant(200, {"schema": '"string"'}), context) as server:
        settings = {"ssl.ca.location": str(ca), "ssl.certificate.location": certificate}
        with Registry(server.url, settings) as registry:
            assert registry.schema(1) == STRING
        for ca_only, message in (
            ({}, "its certificate is not trusted"),
            ({"ssl.ca.location": str(ca)}, "does not answer"),
        ):
            with (
                Registry(server.url, {"max.retries": "0", **ca_only}) as registry,
                pytest.raises(RegistryUnavailable, match=message),
            ):
                registry.schema(1)
        named = server.url.replace("127.0.0.1", "127.0.0.2")
        with Registry(named, settings | {"max.retries": "0"}) as registry, pytest.raises(RegistryUnavailable):
            registry.schema(1)


@pytest.mark.parametrize(
    ("url", "properties", "message"),
    [
        ("", {}, "no URL"),
        ("ftp://h", {}, "'ftp://h' is not valid"),
        ("http://alice:secret@h:port", {}, "'h:port' is not valid"),
        ("http://alice:secret,1@h", {}, "'…' is not valid"),
        ("http://h/?a=b", {}, "is not valid"),
        ("http://h", {"basic.auth.user.infos": "a:b"}, "did you mean basic.auth.user.info?"),
        ("http://h", {"basic.auth.user.info": "secret"}, "is not USER:PASSWORD"),
        ("http://h", {"basic.auth.credentials.source": "SASL_INHERIT"}, "use USER_INFO or URL"),
        ("http://a:b@h,http://c:d@h", {}, "different users"),
        ("http://a:b@h", {"bearer.auth.token": "x"}, "not both"),
        ("http://h", {"bearer.auth.token": "x\r\ny"}, "printable"),
        ("http://h", {"ssl.key.location": "k"}, "without ssl.certificate.location"),
        ("http://h", {"timeout": "0"}, "timeout=0"),
        ("http://h", {"max.retries": "many"}, "max.retries=many"),
        ("https://h", {"ssl.ca.location": "/absent.pem"}, "ssl.ca.location /absent.pem: no such file"),
    ],
)
def test_wrong_settings_are_refused_without_secrets(url: str, properties: dict[str, str], message: str) -> None:
    with pytest.raises(RegistryConfigError) as refusal:
        Registry(url, properties)
    assert message in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_settings_may_have_the_prefix_of_java_clients() -> None:
    settings = parse_settings(
        "", {"schema.registry.url": "http://a:81/p/, https://[::1]", "schema.registry.timeout": "2"}
    )
    assert settings.urls == ("http://a:81/p", "https://[::1]")
    assert settings.timeout_s == 2


def test_another_server_answers_for_one_that_is_gone_and_is_asked_first_from_then_on() -> None:
    gone = socket.create_server(("127.0.0.1", 0))
    port = gone.getsockname()[1]
    gone.close()
    with fake_registry(constant(503, {})) as tired, fake_registry(constant(200, {"schema": '"string"'})) as sound:
        clock = Clock()
        with client(f"http://127.0.0.1:{port},{tired.url},{sound.url}", clock) as registry:
            assert registry.schema(1) == registry.schema(2) == STRING
        assert len(tired.requests) == 1
        assert clock.waits == []


def test_a_busy_server_is_asked_again_after_the_time_it_names() -> None:
    statuses = iter([429, 500, 200])
    with fake_registry(lambda *_: (next(statuses), {"schema": '"string"'})) as server:
        server.answer_headers = {"Retry-After": "3"}
        clock = Clock()
        with client(server.url, clock) as registry:
            assert registry.schema(1) == STRING
        assert clock.waits == [3, 3]


def test_retries_end() -> None:
    with fake_registry(constant(500, {"error_code": 50001, "message": "backend"})) as server:
        clock = Clock()
        with client(server.url, clock) as registry, pytest.raises(RegistryRefused, match="backend"):
            registry.schema(1)
        assert len(server.requests) == 4
        assert [0.05, 0.1, 0.2] <= clock.waits <= [0.1, 0.2, 0.4]


@pytest.mark.parametrize("status", [301, 307])
def test_redirects_are_not_followed(status: int) -> None:
    with fake_registry(constant(200, {"schema": '"string"'})) as other, fake_registry(constant(status, {})) as server:
        server.answer_headers = {"Location": other.url}
        with client(server.url) as registry, pytest.raises(RegistryUnavailable, match="redirects GET /schemas/ids/1"):
            registry.schema(1)
        assert other.requests == []


def test_an_answer_has_bounded_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    from oncelog.schemas.client import requests

    for module in (http_connections, requests):
        monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 1000)

    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"64\r\n" + b" " * 100 + b"\r\n")

    with raw_server(endless) as url, client(url) as registry, pytest.raises(RegistryUnavailable, match="larger than"):
        registry.schema(1)


def test_a_server_that_drips_bytes_meets_the_deadline() -> None:
    clock = Clock()
    connections = []

    def drip(connection: socket.socket) -> None:
        connections.append(1)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while connections:
            clock.now_s += 1  # each byte takes a second
            connection.sendall(b" ")

    with raw_server(drip) as url:
        registry = Registry(url, {"timeout": "5", "max.retries": "1"}, clock=clock, sleep=clock.sleep)
        with registry, pytest.raises(RegistryUnavailable, match="does not answer: timed out"):
            registry.schema(1)
        connections.clear()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not answer: it closed the connection"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "its answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<!--", "is not JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{}", "does not answer"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", r"Not Found \(404, error 404\)"),
    ],
)
def test_what_is_no_registry(data: bytes, message: str) -> None:
    with raw_server(lambda connection: connection.sendall(data)) as url, client(url) as registry:
        with pytest.raises((RegistryUnavailable, RegistryRefused), match=message) as failure:
            registry.schema(1)
        assert not isinstance(failure.value, NotRegistered)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"schema": 1},
        {"schema": "x", "references": [{"name": "a"}]},
        {"schema": "x", "references": [1]},
        {"schema": "x", "metadata": []},
    ],
)
def test_an_answer_of_another_form_is_an_error(document: Any) -> None:
    answers = fake_registry(constant(200, document))
    with answers as server, client(server.url) as registry, pytest.raises(RegistryUnavailable):
        registry.schema(1)


def test_connections_are_kept_and_one_that_was_closed_meanwhile_is_replaced() -> None:
    with fake_registry(constant(200, {"schema": '"string"'})) as server, client(server.url) as registry:
        for schema_id in range(3):
            registry.schema(schema_id)
        assert server.connections == 1
    closed: list[bytes] = [b"HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n", b'{"schema": "\\"int\\""} ']

    with raw_server(lambda connection: connection.sendall(b"".join(closed))) as url:
        clock = Clock()
        with client(url, clock) as registry:
            for schema_id in range(3):
                assert registry.schema(schema_id).text == '"int"'
        assert clock.waits == []


def referring(graph: dict[str, list[str]]) -> Answers:
    """Subjects, each of which refers to others by their names."""

    def answers(_method: str, target: str, _body: Any) -> tuple[int, Any]:
        subject = target.split("/")[2].replace("%3A", ":")
        references = [{"name": f"{used}.name", "subject": used, "version": 1} for used in graph[subject.split(":")[-1]]]
        return 200, {"subject": subject, "version": 1, "id": 1, "schema": f'"{subject}"', "references": references}

    return answers


def test_references_are_found_each_after_those_it_uses() -> None:
    graph = {"a": ["b", "c"], "b": ["d"], "c": ["d", "b"], "d": []}
    with fake_registry(referring(graph)) as server, client(server.url) as registry:
        schema = registry.version("a", 1).schema
        references = dependencies_of(schema, registry.resolver())
        assert list(references) == ["d.name", "b.name", "c.name"]
        assert references["d.name"].text == '"d"'
        assert len(server.requests) == 4
        assert server.requests[1] == ("GET", "/subjects/b/versions/1?deleted=true")
        dependencies_of(schema, registry.resolver(context_of(":.west:a")))
        assert server.requests[-1] == ("GET", "/subjects/%3A.west%3Ac/versions/1?deleted=true")
