"""Logins, permissions, and requests that are refused before they cost anything."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest

from oncelog.client.errors import ConfigError
from oncelog.registry.http import application
from oncelog.registry.http.application import MAX_BODY_BYTES, MAX_LARGE_BODIES, SMALL_BODY_BYTES, Access
from oncelog.registry.http.call import Call
from oncelog.registry.http.permissions import Permissions, read_permissions
from oncelog.registry.http.routes import Match
from oncelog.registry.serving import Settings
from oncelog.web.logins import Basic, NoLogin, Token
from tests.unit.registry.http.web import Web
from tests.unit.registry.test_registration import A, B

ROLES = """
# user  role             subject
reader  DeveloperRead    orders-*
writer  DeveloperWrite   orders-*
manager DeveloperManage  orders-value
owner   ResourceOwner    *
"""


def basic(user: str, password: str = "secret") -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@pytest.fixture
def roles(tmp_path: Path) -> Permissions:
    path = tmp_path / "roles"
    path.write_text(ROLES)
    return read_permissions(path)


def test_a_request_without_a_password_is_asked_for_one() -> None:
    with Web(Access(Basic({"alice": b"secret"}))) as web:
        answer = web.ask("GET", "/subjects")
        assert (answer.status, answer.code) == (401, 401)
        assert answer.headers["www-authenticate"].startswith("Basic")
        assert web.ask("GET", "/subjects", authorization=basic("alice", "wrong")).status == 401
        assert web.ask("GET", "/subjects", authorization=basic("alice")).status == 200
        assert web.ask("GET", "/health").status == 200


def test_a_bearer_token_is_a_login() -> None:
    with Web(Access(Token(b"0123456789abcdef"))) as web:
        assert web.ask("GET", "/subjects").headers["www-authenticate"].startswith("Bearer")
        assert web.ask("GET", "/subjects", authorization="Bearer 0123456789abcdef").status == 200


@pytest.mark.parametrize(
    ("user", "allowed"),
    [("reader", "read"), ("writer", "read write"), ("manager", "read delete"), ("owner", "read write delete global")],
)
def test_roles_allow_what_their_names_say(roles: Permissions, user: str, allowed: str) -> None:
    users = dict.fromkeys(("reader", "writer", "manager", "owner"), b"secret")
    with Web(Access(Basic(users), roles)) as web:
        owner = basic("owner")
        for subject in ("orders-value", "other"):
            web.ask("POST", f"/subjects/{subject}/versions", {"schema": A}, authorization=owner)
        me = basic(user)
        answers = {
            "read": web.ask("GET", "/subjects/orders-value/versions/1", authorization=me),
            "write": web.ask("POST", "/subjects/orders-value/versions", {"schema": B}, authorization=me),
            "global": web.ask("PUT", "/config", {"compatibility": "NONE"}, authorization=me),
            "delete": web.ask("DELETE", "/subjects/orders-value", authorization=me),
        }
        assert {name for name, answer in answers.items() if answer.status == 200} == set(allowed.split())
        assert {answer.code for answer in answers.values() if answer.status != 200} <= {40301}
        listed = web.ask("GET", "/subjects?deleted=true", authorization=me).document
        assert listed == (["orders-value", "other"] if user == "owner" else ["orders-value"])
        assert web.ask("GET", "/schemas?deleted=true", authorization=me).document[-1]["subject"] == listed[-1]


def test_an_id_is_read_by_those_who_may_read_a_subject_that_has_it(roles: Permissions) -> None:
    users = dict.fromkeys(("reader", "owner"), b"secret")
    with Web(Access(Basic(users), roles)) as web:
        for subject, text in (("other", A), ("orders-value", A), ("secret", B)):
            web.ask("POST", f"/subjects/{subject}/versions", {"schema": text}, authorization=basic("owner"))
        assert web.ask("GET", "/schemas/ids/1", authorization=basic("reader")).status == 200
        assert web.ask("GET", "/schemas/ids/1/subjects", authorization=basic("reader")).document == ["orders-value"]
        for address in (
            "/schemas/ids/2",
            "/schemas/ids/2/schema",
            "/schemas/ids/2/versions",
            "/subjects/secret/versions",
        ):
            assert web.ask("GET", address, authorization=basic("reader")).code == 40301


def test_names_of_other_subjects_and_contexts_are_not_told(roles: Permissions) -> None:
    users = dict.fromkeys(("reader", "owner"), b"secret")
    with Web(Access(Basic(users), roles)) as web:
        for subject, text in (("secret", A), ("orders-value", A), ("hidden", B), (":.x:orders-value", B)):
            web.ask("POST", f"/subjects/{subject}/versions", {"schema": text}, authorization=basic("owner"))
        me = basic("reader")
        assert web.ask("GET", "/schemas/ids/1?subject=other", authorization=me).document["subject"] == "orders-value"
        assert "hidden" not in web.ask("GET", "/schemas/ids/2", authorization=me).text
        assert web.ask("GET", "/contexts", authorization=me).document == ["."]
        assert web.ask("GET", "/contexts", authorization=basic("owner")).document == [".", ".x"]
        assert web.ask("POST", "/subjects/orders-value", {"schema": B}, authorization=me).code == 40403


def test_a_manager_of_each_subject_does_not_change_the_settings_of_all(tmp_path: Path) -> None:
    path = tmp_path / "roles"
    path.write_text("alice DeveloperManage *")
    with Web(Access(Basic({"alice": b"secret"}), read_permissions(path))) as web:
        for address, code in (("/config", 40301), ("/config/:.x:", 40301), ("/config/s", 200)):
            answer = web.ask("PUT", address, {"compatibility": "NONE"}, authorization=basic("alice"))
            assert (answer.status if code == 200 else answer.code) == code


@pytest.mark.parametrize("line", ["alice DeveloperRead", "alice Admin *", "alice DeveloperRead a b"])
def test_permissions_that_cannot_be_read_are_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "roles"
    path.write_text(line)
    with pytest.raises(ConfigError, match="line 1"):
        read_permissions(path)


def test_a_read_only_registry_refuses_every_change() -> None:
    with Web(read_only=True) as web:
        assert web.register("s", A).code == 42205
        assert web.ask("PUT", "/config", {"compatibility": "NONE"}).code == 42205
        assert web.ask("GET", "/subjects").document == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a"])
def test_the_forms_of_web_pages_are_not_read(kind: str) -> None:
    with Web() as web:
        assert web.ask("POST", "/subjects/s/versions", {"schema": A}, content_type=kind).code == 415


@pytest.mark.parametrize("kind", ["application/json", "application/vnd.schemaregistry+json; charset=utf-8", ""])
def test_json_is_read_under_all_its_names(kind: str) -> None:
    with Web() as web:
        assert web.ask("POST", "/subjects/s/versions", {"schema": A}, content_type=kind).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "registry"}, 200),
        ({"origin": "http://evil.example", "host": "localhost:8081"}, 403),
        ({"sec_fetch_site": "cross-site", "host": "localhost:8081"}, 403),
        ({"origin": "http://evil.example", "host": "evil.example"}, 403),
        ({"origin": "http://[", "host": "localhost:8081"}, 403),
        ({"origin": "null", "host": "localhost:8081"}, 403),
        ({"origin": "http://localhost:8081", "host": "localhost:8081", "sec_fetch_site": "same-origin"}, 200),
        ({"origin": "http://registry.example", "host": "registry.example"}, 200),
    ],
)
def test_pages_of_other_sites_may_not_use_it(headers: dict[str, str], status: int) -> None:
    with Web(Access(NoLogin(), names=frozenset({"registry.example"}))) as web:
        assert web.ask("GET", "/subjects", **headers).status == status


@pytest.mark.parametrize(
    ("host", "status"),
    [("evil.example:8081", 403), ("localhost:8081", 200), ("127.0.0.1:8081", 200), ("[::1]", 200), ("registry", 200)],
)
def test_a_page_whose_name_leads_to_this_machine_does_not_read(host: str, status: int) -> None:
    with Web(Access(NoLogin(), names=frozenset({"registry"}), is_for_this_machine=True)) as web:
        assert web.ask("GET", "/subjects", host=host).status == status


def test_a_body_is_bounded() -> None:
    with Web() as web:
        assert web.ask("POST", "/subjects/s/versions", b" " * (MAX_BODY_BYTES + 1)).code == 413
        large = '{"a":"' + "x" * 1_000_000 + '"}'
        assert web.register("s", large).code == 42209


def test_large_requests_take_turns_until_they_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    working, most = 0, 0

    async def register(call: Call) -> dict[str, int]:
        nonlocal working, most
        working += 1
        most = max(most, working)
        for _ in range(5):
            await asyncio.sleep(0)
        working -= 1
        return {"id": len(call.body)}

    route = Match(register, {}, ".")
    monkeypatch.setattr(application, "match", lambda _method, _path: route)
    with Web() as web:
        large = [("POST", "/subjects/s/versions", b" " * (SMALL_BODY_BYTES + 1))] * (MAX_LARGE_BODIES + 4)
        assert {answer.status for answer in web.together(*large)} == {200}
        assert most == MAX_LARGE_BODIES
        chunked = {"transfer_encoding": "chunked", "content_length": "1"}
        monkeypatch.setattr(application, "WAIT_S", 0)
        web.take_large_turns()
        assert web.ask("POST", "/subjects/s/versions", b" ", **chunked).status == 503


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999"])
def test_numbers_that_no_json_has_are_not_read(number: bytes) -> None:
    rules = b'{"domainRules":[{"name":"r","type":"T","params":{"p":%s}}]}' % number
    with Web() as web:
        assert web.ask("POST", "/subjects/s/versions", b'{"schema":"{}","ruleSet":%s}' % rules).code == 400


def test_answers_have_the_content_type_that_the_client_reads() -> None:
    with Web() as web:
        for accept, kind in (
            ("application/json", "application/json"),
            ("application/vnd.schemaregistry.v1+json, application/json", "application/vnd.schemaregistry.v1+json"),
            ("*/*", "application/vnd.schemaregistry.v1+json"),
        ):
            assert web.ask("GET", "/subjects", accept=accept).headers["content-type"] == kind


def test_a_schema_costs_nothing_before_the_user_is_known() -> None:
    with Web(Access(Basic({"alice": b"secret"}))) as web:
        web.register("s", A)
        assert web.formats.parsed == []


def test_settings_that_expose_a_registry_need_a_word_for_it() -> None:
    with pytest.raises(ConfigError, match="--open"):
        Settings("localhost:9092", host="0.0.0.0")
    with pytest.raises(ConfigError, match="--auth"):
        Settings("localhost:9092", permissions=Permissions(()))
    assert Settings("localhost:9092", host="0.0.0.0", is_open=True).url == "http://0.0.0.0:8081"
