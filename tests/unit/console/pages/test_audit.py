"""The pages of audits: an upload, a report, a run over a directory that was allowed; never without the gate."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oncelog.console.application import application
from oncelog.console.settings import Settings
from tests.unit.console.audits.test_report import document
from tests.unit.console.visits import ORIGIN, token_of, visiting
from tests.unit.spark.audit.logs import Coordinator, Log
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
NOWHERE = "127.0.0.1:9"
HOSTILE = "<script>alert(1)</script>\"'&\u202e"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A directory with one transaction that hangs."""
    log, coordinator = Log(tmp_path / "data", "t"), Coordinator(tmp_path / "data")
    log.transaction(epoch=0)
    log.data(epoch=1)
    coordinator.ended("t-0", epoch=0, name=HOSTILE)
    coordinator.write()
    log.write()
    (tmp_path / "data" / ".kafka_cleanshutdown").touch()
    return tmp_path / "data"


@pytest.fixture
def visitor(data: Path) -> Iterator[TestClient]:
    """A visitor of a console that only reads, whose cluster is away."""
    with visiting(NOWHERE, audit_data=(data,)) as result:
        yield result


def upload(visitor: TestClient, text: bytes, token: str | None = None) -> tuple[int, str]:
    fields = {"token": token_of(visitor, "/audit") if token is None else token}
    answer = visitor.post("/tasks/audit/upload", data=fields, files={"report": ("r.json", text)})
    return answer.status_code, str(answer.url.path) + "?" + answer.url.query.decode() if answer.is_success else ""


def test_a_report_is_opened_filtered_and_harmless(visitor: TestClient) -> None:
    listed = [{"kind": "hanging", "topic": HOSTILE, "partition": 0, "offset": 3, "text": HOSTILE, "producer_id": 7}]
    status, path = upload(visitor, document(listed=listed * 150, findings={"hanging": 200}, directories=[HOSTILE]))
    assert (status, path) == (200, "/audit/report?key=upload-1")
    page = visitor.get(path)
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "\u202e" not in page.text
    assert "The report lists 150 of 200" in page.text
    assert '<rect class="fate hanging"' in page.text
    rows = visitor.get("/audit/report.json?key=upload-1&page=2").json()
    assert (len(rows["findings"]["rows"]), rows["found"], rows["report"]["fates"]["hanging"]) == (50, 200, 1)
    assert visitor.get("/audit/report.json?key=upload-1&name=8").json()["findings"]["total"] == 0
    assert visitor.get("/audit/report.json?key=upload-1&name=7").json()["findings"]["total"] == 150
    links = {html.unescape(item) for item in re.findall(r'href="(/audit[^"]*)"', page.text)}
    assert links
    assert {visitor.get(link).status_code for link in links} == {200}
    assert visitor.get("/audit/report?key=upload-2").status_code == 404
    assert visitor.get("/audit.json").json()["reports"]["rows"][0]["source"] == "upload"


def test_uploads_pass_the_gate_and_its_bounds(visitor: TestClient) -> None:
    assert upload(visitor, b"[]")[0] == 400
    assert upload(visitor, document(), token="0" * 64)[0] == 403
    assert upload(visitor, b" " * (9 << 20))[0] == 413
    token = token_of(visitor, "/audit")
    bare = {"content-type": "multipart/form-data"}
    for body, headers in (
        (b"x", bare),
        (b"x", {"content-type": "multipart/form-data; boundary=b"}),
        (b"--b\r\n\r\n\r\n--b--", {"content-type": "multipart/form-data; boundary=b"}),
        (b"--b\r\nContent-Disposition: x\r\n\r\n" * 99, {"content-type": "multipart/form-data; boundary=b"}),
        (b"{}", {"content-type": "application/json"}),
    ):
        assert visitor.post("/tasks/audit/upload", content=body, headers=headers).status_code == 413
    with TestClient(application(Settings(NOWHERE)), base_url=ORIGIN) as stranger:
        assert upload(stranger, document(), token=token)[0] == 413, "no session: not even read"
    foreign = {"origin": "http://evil.example"}
    assert visitor.post("/tasks/audit/upload", data={"token": token}, headers=foreign).status_code == 403


def test_an_audit_is_run_over_an_allowed_directory_and_no_other(visitor: TestClient, data: Path) -> None:
    token = token_of(visitor, "/audit")
    for wrong in ("/", str(data.parent), f"{data}/../data", ""):
        assert visitor.post("/tasks/audit/start", data={"token": token, "directory": wrong}).status_code == 400
    assert visitor.post("/tasks/audit/cancel", data={"token": token, "key": "run-1"}).status_code == 404
    form = {"token": token, "directory": str(data), "checksums": "1", "copied_within": "0"}
    started = visitor.post("/tasks/audit/start", data=form)
    assert started.status_code == 200
    assert str(started.url).endswith("/audit/run?key=run-1")
    address = "/audit/run.json?key=run-1"
    wait_until(lambda: visitor.get(address).json()["run"]["state"] != "running", "the audit's end")
    assert (
        visitor.get(address).json()["run"] | {"state": "done", "step": "reading segments"}
        == visitor.get(address).json()["run"]
    ), visitor.get(address).text
    page = visitor.get("/audit/run?key=run-1").text
    assert "--copied-within 0 --json" in page
    assert "--progress" not in page
    report = visitor.get("/audit/report.json?key=run-1").json()
    assert report["report"]["kinds"] == {"hanging": 1}
    assert report["plot"]["columns"]
    shown = visitor.get("/audit/report?key=run-1").text
    assert "an open transaction that no coordinator will end" in shown
    assert "<script>alert" not in shown


def test_work_never_comes_with_a_permit(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where changes are allowed: whatever is mounted below /tasks/ cannot change a cluster."""
    seen: list[object] = []
    with visiting(NOWHERE, audit_log=tmp_path / "audit", audit_data=(data,)) as visitor:
        gate = "oncelog.console.admission.gate.Visitor"
        real = __import__("oncelog.console.admission.gate", fromlist=["Visitor"]).Visitor
        monkeypatch.setattr(gate, lambda *values: seen.append(values[3:]) or real(*values))
        visitor.post("/tasks/audit/cancel", data={"token": token_of(visitor, "/audit"), "key": "x"})
        visitor.post("/transactions/abort", data={"token": token_of(visitor, "/audit")})
    permits = [item[0] for item in seen if isinstance(item, tuple) and item]
    assert permits[0] is None
    assert permits[1] is not None
