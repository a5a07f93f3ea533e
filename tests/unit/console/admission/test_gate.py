"""Nobody changes anything but through the gate: every route, every method, every way round it."""

from __future__ import annotations

import ast
import asyncio
import json
import time
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.testclient import TestClient

import oncelog.console
from oncelog.client.errors import ConfigError
from oncelog.console.admission import gate
from oncelog.console.admission.gate import WORK_PREFIX
from oncelog.console.admission.refusals import Refusals
from oncelog.console.admission.sessions import Session, cookie_of, form_token, is_form_token, new_session, session_of
from oncelog.console.application import application
from oncelog.console.pages import ACTIONS, WORKS
from oncelog.console.settings import Settings
from oncelog.web import attempts
from oncelog.web.logins import Basic, Header, Token, login_of
from tests.unit.console.visits import ORIGIN, lines_of, token_of, visiting
from tests.waiting import HANG_S

NOWHERE = "127.0.0.1:9"
METHODS = ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
CHANGING = {
    "abort": "oncelog.admin.transactions.abort_marker",
    "write_abort_marker": "oncelog.admin.transactions.abort_marker",
    "force_terminate": "oncelog.admin.transactions.termination",
    "execute_reset": "oncelog.admin.groups",
    "delete_groups": "oncelog.admin.groups",
    "delete_offsets": "oncelog.admin.groups",
    "alter_configs": "oncelog.admin.configs",
    "create_topic": "oncelog.admin.topics",
    "delete_topics": "oncelog.admin.topics",
    "delete_records": "oncelog.admin.topics",
    "add_partitions": "oncelog.admin.topics",
    "commit_offsets": "oncelog.client.programs.group",
    "create_acls": "oncelog.admin.acls",
    "delete_acls": "oncelog.admin.acls",
    "set_password": "oncelog.admin.scram_users",
    "delete_credentials": "oncelog.admin.scram_users",
    "alter_quotas": "oncelog.admin.client_quotas",
    "Producer": "oncelog.client.blocking.producer",
    "produce_request": "oncelog.client.machine.requests",
}


def routes(app: Starlette) -> Iterator[Route]:
    return (route for route in app.routes if isinstance(route, Route))


def paths() -> list[str]:
    return sorted({route.path for route in routes(application(Settings(NOWHERE)))} | {"/static/console.js", "/nothing"})


@pytest.mark.slow
def test_no_route_takes_a_change_while_the_console_only_reads() -> None:
    with visiting(NOWHERE) as visitor:
        for path in paths():
            for method in METHODS:
                assert visitor.request(method, path, data={"token": "x"}).status_code == 403, (method, path)


@pytest.mark.slow
def test_no_route_takes_a_change_without_the_token_of_its_session(tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    with visiting(NOWHERE, audit_log=audit) as visitor:
        visitor.get("/health.json")
        for path in paths():
            for method in METHODS:
                answer = visitor.request(method, path, data={"token": "0" * 64, "typed": "x"})
                assert answer.status_code in (403, 405), (method, path)
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert {line["outcome"] for line in lines} == {"refused"}


def test_of_a_flood_of_refusals_a_hundred_a_minute_are_noted() -> None:
    lines: list[Mapping[str, object]] = []
    now_s = 59.0
    refusals = Refusals(Environment(autoescape=True), lines.append, lambda: now_s)
    request = Request({"type": "http", "path": "/topics/create", "client": ("127.0.0.1", 4711), "headers": []})
    for _ in range(150):
        refusals.note(request, "ann", "no token")
    assert len(lines) == 100
    assert [line.get("more_this_minute") for line in lines[-2:]] == [None, "not written"]
    now_s = 60.0
    refusals.note(request, "ann", "no token")
    assert len(lines) == 101


def test_reading_routes_take_no_form_and_actions_answer_no_reader() -> None:
    app = application(Settings(NOWHERE))
    for route in routes(app):
        assert route.methods is not None
        assert route.methods <= {"GET", "HEAD"} or route.methods == {"POST"}, route.path
    with visiting(NOWHERE) as visitor:
        for route in routes(app):
            if route.methods == {"POST"}:
                # A preview leads back to its form, which is what a login after it asks for.
                assert visitor.get(route.path, follow_redirects=False).status_code in (405, 307)


def test_only_the_modules_of_changes_can_call_what_changes_a_cluster() -> None:
    room = Path(oncelog.console.__file__).parent
    for path in sorted(room.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and path.parent != room / "changes":
                named = {name.name for name in node.names} & set(CHANGING)
                assert not named, f"{path.name} imports {named}"
            if isinstance(node, ast.Import):
                assert not any(name.name.startswith("oncelog.") for name in node.names), path.name
            if isinstance(node, ast.Attribute):
                assert node.attr != "produce", path.name


def test_a_foreign_pages_form_is_refused_even_with_the_token(tmp_path: Path) -> None:
    settings = Settings(NOWHERE, allow_changes=True, audit_log=tmp_path / "audit")
    with TestClient(application(settings), base_url=ORIGIN) as visitor:
        visitor.get("/health.json")
        session = session_of(visitor.cookies["oncelog-console-8080"], settings.secret, int(time.time()))
        assert session is not None
        form = {"token": form_token(session, settings.secret)}
        origins = [{"Origin": origin} for origin in ("http://evil.example", "null", "http://[")]
        for headers in (*origins, {"Sec-Fetch-Site": "cross-site"}):
            answer = visitor.post("/transactions/terminate", data=form, headers=headers)
            assert (answer.status_code, "another site" in answer.text) == (403, True)
        assert visitor.post("/transactions/terminate", json=form).status_code == 413
        big = form | {"id": "x" * 300_000}
        assert visitor.post("/transactions/terminate", data=big).status_code == 413


def test_names_that_point_here_from_elsewhere_are_refused() -> None:
    with visiting(NOWHERE, names=frozenset({"logs.example"})) as visitor:
        for host in ("evil.example", "evil.example:8080", "", "localhost.evil.example", "127.0.0.1.evil.example"):
            assert visitor.get("/health.json", headers={"Host": host}).status_code == 421, host
        for host in ("localhost:8080", "127.0.0.1", "[::1]:8080", "logs.example", "LOGS.example:8443", "10.0.0.7:1"):
            assert visitor.get("/health.json", headers={"Host": host}).status_code == 200, host


@pytest.mark.slow
def test_every_answer_forbids_scripts_and_frames_from_elsewhere() -> None:
    with visiting(NOWHERE) as visitor:
        for path in ("/health.json", "/nothing", "/static/console.js", "/explain"):
            policy = visitor.get(path).headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy


def test_templates_have_no_inline_scripts_styles_or_unescaped_values() -> None:
    for path in sorted((Path(oncelog.console.__file__).parent / "templates").iterdir()):
        text = path.read_text("utf-8")
        for forbidden in (
            "| safe",
            "|safe",
            "autoescape",
            " style=",
            "<style",
            " onclick",
            "javascript:",
            "hx-on",
            "http:",
        ):
            assert forbidden not in text, (path.name, forbidden)
        assert text.count("<script") == text.count('<script src="/static/'), path.name


def test_beyond_loopback_needs_tls_and_a_login(tmp_path: Path) -> None:
    certificate = tmp_path / "c"
    for settings in ({}, {"login": Header("X-User")}, {"tls_certificate": certificate, "tls_key": certificate}):
        with pytest.raises(ConfigError, match="TLS"):
            Settings(NOWHERE, host="0.0.0.0", **settings)  # type: ignore[arg-type]  # names and values of its fields
    Settings(NOWHERE, host="0.0.0.0", login=Header("X-User"), tls_certificate=certificate, tls_key=certificate)
    Settings(NOWHERE, host="::1")
    with pytest.raises(ConfigError, match="audit-log"):
        Settings(NOWHERE, allow_changes=True)


def test_logins() -> None:
    with visiting(NOWHERE, login=Basic({"ann": b"secret"})) as visitor:
        assert "Basic" in visitor.get("/health.json").headers["www-authenticate"]
        assert NOWHERE not in visitor.get("/overview").text, "strangers are not told where the cluster is"
        assert visitor.get("/static/../overview").status_code in (401, 404)
        assert visitor.get("/health.json", auth=("ann", "wrong")).status_code == 401
        assert visitor.get("/health.json", auth=("bob", "secret")).status_code == 401
        assert visitor.get("/health.json", headers={"Authorization": "Basic %%%"}).status_code == 401
        assert visitor.get("/health.json", auth=("ann", "secret")).status_code == 200
        assert visitor.get("/health.json").status_code == 401, "the session alone is no login"
    with visiting(NOWHERE, login=Header("X-User")) as visitor:
        assert visitor.get("/health.json").status_code == 401
        assert visitor.get("/health.json", headers={"X-User": "ann"}).status_code == 200


def test_a_token_is_typed_once() -> None:
    token = "t" * 32
    with visiting(NOWHERE, login=Token(token.encode())) as visitor:
        assert visitor.get("/overview").status_code == 401
        assert visitor.post("/login", data={"secret": "wrong"}).status_code == 401
        assert visitor.post("/login", data={"secret": token}, headers={"Origin": "http://evil"}).status_code == 401
        for _ in ("once", "and once more, from a tab that does not know it yet"):
            answer = visitor.post("/login", data={"secret": token, "return_to": "/groups"}, follow_redirects=False)
            assert (answer.status_code, answer.headers["location"]) == (303, "/groups")
        assert visitor.post("/login", data={"secret": "wrong"}).status_code == 401
        assert visitor.get("/health.json").status_code == 200
        assert visitor.get("/health.json", headers={"Cookie": "oncelog-console-8080=W10=.00"}).status_code == 401
    with visiting(NOWHERE, login=Token(token.encode())) as visitor:
        assert visitor.get("/health.json", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_files_of_secrets_are_their_owners_alone(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("# who\nann:se:cret\n")
    users.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        login_of("basic", str(users))
    users.chmod(0o600)
    assert login_of("basic", str(users)) == Basic({"ann": b"se:cret"})
    users.write_text("short")
    with pytest.raises(ConfigError, match="16"):
        login_of("token", str(users))
    with pytest.raises(ConfigError, match="line 1"):
        login_of("basic", str(users))
    with pytest.raises(ConfigError, match="basic FILE"):
        login_of("ldap", "x")


def test_sessions_are_signed_and_end() -> None:
    session = new_session("änn", 1000)
    cookie = cookie_of(session, b"key")
    assert session_of(cookie, b"key", 1000) == session
    assert session_of(cookie, b"other", 1000) is None
    assert session_of(cookie, b"key", 1000 + 13 * 3600) is None
    for wrong in ("", ".", cookie[:-1], "x" + cookie, "é.é", cookie * 20):
        assert session_of(wrong, b"key", 1000) is None
    assert is_form_token(form_token(session, b"key"), session, b"key")
    assert not is_form_token(form_token(Session("änn", 1000, "other"), b"key"), session, b"key")
    assert not is_form_token("é", session, b"key")


def test_a_login_leads_to_the_page_that_was_asked_for_and_nowhere_else() -> None:
    token = "t" * 32
    with visiting(NOWHERE, login=Token(token.encode())) as visitor:
        assert 'name="return_to" value="/topics?filter=a"' in visitor.get("/topics?filter=a").text
        assert 'name="return_to" value="/"' in visitor.get("/login").text
        for expected, to in (
            ("/topics?filter=a", "/topics?filter=a"),
            ("//evil.example/", "/"),
            ("/\\evil.example/", "/"),
            ("https://evil.example/", "/"),
            ("/a\r\nSet-Cookie: b", "/"),
            ("", "/"),
        ):
            answer = visitor.post("/login", data={"secret": token, "return_to": expected}, follow_redirects=False)
            assert (answer.status_code, answer.headers["location"]) == (303, to), expected
            visitor.cookies.clear()


def test_a_session_that_has_ended_is_said_and_what_it_sent_was_not_done(tmp_path: Path) -> None:
    token, sender = "t" * 32, f"{ORIGIN}/topics/change?name=a"
    with visiting(NOWHERE, login=Token(token.encode()), audit_log=tmp_path / "audit") as visitor:
        assert "has ended" not in visitor.get("/overview").text
        visitor.cookies.set("oncelog-console-8080", "W10=.00")
        ended = visitor.get("/overview")
        assert (ended.status_code, "Your session has ended" in ended.text) == (401, True)
        form = visitor.post("/topics/delete", data={"typed": "a"}, headers={"Referer": sender})
        assert (form.status_code, "nothing was done" in form.text) == (401, True)
        assert 'name="return_to" value="/topics/change?name=a"' in form.text
        for elsewhere in ("http://evil.example/a", "http://["):
            foreign = visitor.post("/topics/delete", data={"typed": "a"}, headers={"Referer": elsewhere})
            assert 'name="return_to" value="/"' in foreign.text
        lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
        assert {line["outcome"] for line in lines} == {"refused"}


def test_a_refused_form_names_the_page_it_came_from_and_no_other_sites(tmp_path: Path) -> None:
    with visiting(NOWHERE, audit_log=tmp_path / "audit") as visitor:
        for sender, shown in (
            (f"{ORIGIN}/topics/change?name=a", True),
            ("http://evil.example/topics", False),
            (f"{ORIGIN}//evil.example/", False),
        ):
            answer = visitor.post("/topics/delete", data={"token": "x"}, headers={"Referer": sender})
            assert (answer.status_code, "Reload the form" in answer.text) == (403, shown), sender


@pytest.mark.slow
def test_every_action_leaves_a_line_with_who_from_where_and_what_came_of_it(tmp_path: Path) -> None:
    """Whatever is added to the actions: a request that passed the gate and came to nothing is in the audit, too."""
    audit = tmp_path / "audit"
    with visiting(NOWHERE, audit_log=audit) as visitor:
        token = token_of(visitor, "/audit")
        paths = [action.path for action in (*ACTIONS, *WORKS) if getattr(action, "is_change", True)]
        for number, path in enumerate(paths):
            form = {"token": token, "topic": "t-1", "id": "x-1", "typed": "no", "value": "secret", "report": "secret"}
            form |= {} if path.startswith(WORK_PREFIX) else {"key": "secret", "headers": ": secret"}
            assert visitor.post(path, data=form).status_code >= 400, path
            line = lines_of(audit)[number]
            result = (line["path"], line["outcome"], line["by"], line["via"], line["topic"], line["typed"])
            assert result == (path, "refused", "local", "console", "t-1", "no")
            assert line["address"].startswith("testclient:")
            assert line["error"]
    assert len(lines_of(audit)) == len(paths)
    assert "secret" not in audit.read_text()
    assert sum(path.startswith(WORK_PREFIX) for path in paths) == len(WORKS)


@pytest.mark.slow
def test_who_is_not_let_in_leaves_a_line(tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    with visiting(NOWHERE, audit_log=audit, login=Basic({"ann": b"secret"})) as visitor:
        visitor.get("/overview")
        assert not audit.read_text(), "a browser that has not asked for the password yet"
        visitor.get("/overview", auth=("ann", "wrong"))
        visitor.post("/topics/delete", data={"name": "a"})
        visitor.post("/topics/delete", data={"name": "a"}, headers={"Host": "evil.example"})
    lines = lines_of(audit)
    assert [(line["outcome"], line["path"], line["by"]) for line in lines] == [
        ("refused", "/overview", ""),
        ("refused", "/topics/delete", ""),
        ("refused", "/topics/delete", ""),
    ]
    assert "wrong" in lines[0]["error"]
    assert "evil.example" in lines[2]["error"]


@pytest.mark.parametrize("name", ["logs.example:8080", "https://logs.example", "", "logs example"])
def test_a_name_that_no_browser_would_send_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a host name"):
        Settings(NOWHERE, names=frozenset({name}))


FOREIGN = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
NAVIGATION = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.mark.slow
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_another_sites_page_fetches_nothing_and_may_link_here(site: str, method: str) -> None:
    with visiting(NOWHERE) as visitor:
        for path in paths() if (site, method) == ("cross-site", "GET") else ("/health.json", "/static/console.js"):
            assert visitor.request(method, path, headers={**FOREIGN, "Sec-Fetch-Site": site}).status_code == 403, path
        shown_within = {**NAVIGATION, "Sec-Fetch-Dest": "iframe", "Sec-Fetch-Site": site}
        assert visitor.request(method, "/health.json", headers=shown_within).status_code == 403
        assert visitor.request(method, "/health.json", headers={"Sec-Fetch-Site": site}).status_code == 403
        for own in ({**NAVIGATION, "Sec-Fetch-Site": site}, {**FOREIGN, "Sec-Fetch-Site": "same-origin"}):
            assert visitor.request(method, "/health.json", headers=own).status_code == 200


@pytest.mark.parametrize(
    "name",
    ["Host", "X-Forwarded-User", "Authorization", "Cookie", "Origin", "Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode"],
)
def test_a_header_that_decides_something_comes_once(name: str) -> None:
    own = {"Host": "127.0.0.1:8080", "X-Forwarded-User": "alice", name: "127.0.0.1:8080"}
    login = Header("X-Forwarded-User")
    with visiting(NOWHERE, login=login) as visitor:
        once = list(own.items())
        assert visitor.get("/health.json", headers=once).status_code in (200, 403)
        for other in ("127.0.0.1:8080", "mallory"):
            answer = visitor.get("/health.json", headers=[*once, (name.lower(), other)])
            assert answer.status_code == 400
            assert "the request has two" in answer.json()["error"]


def test_two_lengths_of_a_body_are_refused() -> None:
    with visiting(NOWHERE) as visitor:
        headers = {"Content-Length": "0", "Transfer-Encoding": "chunked"}
        assert visitor.get("/health.json", headers=headers).status_code == 400


def test_two_cookies_of_a_session_are_none() -> None:
    with visiting(NOWHERE, login=Token(b"0123456789abcdef")) as visitor:
        visitor.get("/health.json", headers={"Authorization": "Bearer 0123456789abcdef"})
        ((name, value),) = visitor.cookies.items()
        visitor.cookies.clear()
        for cookie, status in ((f"{name}={value}", 200), (f"{name}={value}; {name}=x", 401), (f"a=b; {name}=x", 401)):
            assert visitor.get("/health.json", headers={"Cookie": cookie}).status_code == status


def test_wrong_passwords_slow_down_their_address_and_not_those_who_are_logged_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempts, "PAUSE_S", 0.01)
    monkeypatch.setattr(attempts, "MAX_WAITING", 0)
    right, wrong = ("alice", "right"), ("alice", "wrong")
    with visiting(NOWHERE, login=Basic({"alice": b"right"})) as visitor:
        assert visitor.get("/health.json", auth=right).status_code == 200
        session = dict(visitor.cookies)
        visitor.cookies.clear()
        tried = [visitor.get("/health.json", auth=wrong).status_code for _ in range(attempts.FREE + 3)]
        assert tried == [401] * attempts.FREE + [429] * 3
        refused = visitor.get("/health.json", auth=right)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
        assert visitor.get("/health.json").status_code == 401, "the question for a password costs no attempt"
        visitor.cookies.update(session)
        assert visitor.get("/health.json", auth=right).status_code == 200
        tried = [visitor.get("/health.json", auth=wrong).status_code for _ in range(attempts.FREE + 1)]
        assert tried == [401] * attempts.FREE + [429]


def test_wrong_tokens_in_the_form_are_slowed_down_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "MAX_WAITING", 0)
    with visiting(NOWHERE, login=Token(b"0123456789abcdef")) as visitor:
        tried = [visitor.post("/login", data={"secret": "x"}).status_code for _ in range(attempts.FREE + 1)]
        assert tried == [401] * attempts.FREE + [429]
        assert visitor.post("/login", data={"secret": "0123456789abcdef"}).status_code == 429
        bearer = {"Authorization": "Bearer 0123456789abcdef"}
        assert visitor.get("/health.json", headers=bearer).status_code == 429


def test_a_form_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "FORM_PATIENCE_S", 0.01)

    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        if not sent:
            await asyncio.sleep(HANG_S)
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = {"host": "localhost", "content-type": "application/x-www-form-urlencoded", "content-length": "100"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/login",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 5000),
    }
    app = application(Settings(NOWHERE, login=Token(b"0123456789abcdef")))
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 401
