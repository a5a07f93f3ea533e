"""Access control lists, SCRAM users and quotas: read with filters, changed as previewed, passwords nowhere."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oncelog.admin.acls import create_acls, list_acls
from oncelog.admin.client_quotas import alter_quotas, list_quotas
from oncelog.admin.scram_users import list_credentials
from oncelog.base.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from oncelog.client.blocking import Client
from oncelog.testing.broker import Broker
from tests.unit.console.visits import lines_of, token_of, visiting

pytestmark = pytest.mark.slow
HOSTILE = "User:<img src=x onerror=alert(1)>\u202e"
SECRET = "correct horse battery staple"
RUNS = (getpass.getuser(), socket.gethostname())
"""The user and the machine of the console, in each line of its audit log."""
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(CONFIG) as started, Client(started.bootstrap_servers) as client:
        allow = AclEntry("User:ann", "*", Operation.READ, Permission.ALLOW)
        deny = AclEntry(HOSTILE, "10.0.0.1", Operation.ALL, Permission.DENY)
        create_acls(client, [AclBinding(ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, "orders"), allow)])
        create_acls(client, [AclBinding(ResourcePattern(ResourceType.GROUP, PatternType.PREFIXED, "app-"), deny)])
        alter_quotas(client, (("client-id", None),), {"consumer_byte_rate": 1_048_576.0})
        yield started


@pytest.fixture
def changer(secured: Broker, tmp_path: Path) -> Iterator[TestClient]:
    with visiting(secured.bootstrap_servers, audit_log=tmp_path / "audit") as visitor:
        yield visitor


def test_entries_are_filtered_and_sorted(secured: Broker) -> None:
    with visiting(secured.bootstrap_servers) as reader:
        rows = reader.get("/security.json?sort=principal").json()["acls"]["rows"]
        assert [row["principal"] for row in rows] == [HOSTILE, "User:ann"]
        for query, principals in (
            ("filter=ORDERS", ["User:ann"]),
            ("filter=onerror", [HOSTILE]),
            ("type=GROUP", [HOSTILE]),
            ("operation=READ&permission=ALLOW", ["User:ann"]),
            ("filter=nothing", []),
        ):
            rows = reader.get(f"/security.json?{query}").json()["acls"]["rows"]
            assert [row["principal"] for row in rows] == principals, query
        assert reader.get("/security?type=MOON").status_code == 400
        page = reader.get("/security").text
        assert "<img" not in page
        assert "\u202e" not in page
        assert "remove…" not in page, "it is read-only"
        assert reader.post("/security/acl/add", data={"principal": "User:x"}).status_code == 403


def test_an_entry_is_added_and_removed_as_previewed(secured: Broker, changer: TestClient, tmp_path: Path) -> None:
    entry = {
        "principal": "User:bob",
        "operation": "WRITE",
        "permission": "ALLOW",
        "type": "TOPIC",
        "resource": "orders",
    }
    entry |= {"pattern": "PREFIXED", "host": "*"}
    preview = changer.get("/security/acl", params=entry).text
    assert "does not exist" in preview
    form = {"token": token_of(changer, "/topics/change"), "typed": "User:bob"}
    path = "/security/acl/add"
    assert changer.post(path, params=entry, data=form | {"typed": "bob"}).status_code == 409
    for wrong in ({"principal": "bob"}, {"operation": "CLUSTER_ACTION"}, {"type": "MOON"}, {"resource": ""}):
        assert changer.post(path, params=entry | wrong, data=form).status_code == 400, wrong
    assert changer.post(path, params=entry, data=form).status_code == 200
    assert changer.post(path, params=entry, data=form).status_code == 409, "it exists"
    with Client(secured.bootstrap_servers) as client:
        (made,) = [binding for binding in list_acls(client) if binding.entry.principal == "User:bob"]
        assert (made.pattern.pattern_type, made.pattern.name) == (PatternType.PREFIXED, "orders")
    assert "exists" in changer.get("/security/acl", params=entry).text
    assert changer.post("/security/acl/remove", params=entry, data=form).status_code == 200
    assert changer.post("/security/acl/remove", params=entry, data=form).status_code == 409
    lines = lines_of(tmp_path / "audit")
    done = [line for line in lines if line["outcome"] == "done"]
    assert [line["action"] for line in done] == ["add-acl", "remove-acl"]
    assert (done[0]["principal"], done[0]["operation"], done[0]["resource"]) == ("User:bob", "WRITE", "orders")
    assert {line["principal"] for line in lines if line["outcome"] == "refused"} == {"User:bob", "bob"}
    assert {(line["user"], line["host"]) for line in lines} == {RUNS}
    assert done[0]["from_host"] == "*"


def test_a_password_is_set_and_is_nowhere(secured: Broker, changer: TestClient, tmp_path: Path) -> None:
    path = "/security/user?user=carol&mechanism=SCRAM-SHA-512&iterations=8192"
    page = changer.get(path).text
    assert "8192 iterations, with the password below" in page
    form = {"token": token_of(changer, path), "was": "none", "typed": "carol"}
    form |= {"password": SECRET, "repeated": SECRET}
    address = path.replace("/user", "/user/set", 1)
    answers = [
        changer.post(address, data=form | {"repeated": SECRET + "x"}),
        changer.post(address, data=form | {"typed": SECRET[:5]}),
        changer.post(address, data=form | {"typed": SECRET}),
        changer.post(address, data=form | {"password": "", "repeated": ""}),
        changer.post(address.replace("8192", "1"), data=form),
        changer.post(address, data=form),
        changer.post(address, data=form),
    ]
    assert [answer.status_code for answer in answers] == [400, 409, 400, 400, 400, 200, 409], "the last: it has changed"
    with Client(secured.bootstrap_servers) as client:
        assert [(row.mechanism, row.iterations) for row in list_credentials(client, ["carol"])] == [
            ("SCRAM-SHA-512", 8192)
        ]
    texts = [answer.text for answer in answers] + [(tmp_path / "audit").read_text(), changer.get(path).text]
    texts += [changer.get("/security/users.json").text, changer.get("/security/users?filter=CAROL").text]
    assert not [text for text in texts if SECRET in text]
    assert "carol" in texts[-1]
    for name in ("password", "repeated"):
        addressed = changer.get(f"{path}&{name}={SECRET}")
        assert (addressed.status_code, "correct" in addressed.text) == (400, False)
    gone = changer.post("/security/user/remove", data=form | {"user": "carol", "mechanism": "SCRAM-SHA-512"})
    assert gone.status_code == 200
    lines = lines_of(tmp_path / "audit")
    assert {(line["user"], line["host"], line["for_user"]) for line in lines} == {(*RUNS, "carol")}
    actions = [(line["action"], line["outcome"]) for line in lines if line["outcome"] == "done"]
    assert actions == [("set-scram-user", "done"), ("remove-scram-user", "done")]


def test_a_quota_is_set_as_previewed(secured: Broker, changer: TestClient, tmp_path: Path) -> None:
    rows = changer.get("/security/quotas.json?filter=default").json()["quotas"]["rows"]
    assert [(row["entity"], row["key"], row["value"]) for row in rows] == [
        ({"client-id": None}, "consumer_byte_rate", 1_048_576.0)
    ]
    chosen = {"user": "dan", "client_id": "etl", "key": "producer_byte_rate", "value": "2048"}
    page = changer.get("/security/quota", params=chosen).text
    assert "2048" in page
    form = {"token": token_of(changer, "/topics/change"), "was": "none", "typed": "etl"}
    assert changer.get("/security/quota", params=chosen | {"value": "2048.5"}).status_code in (400, 502), (
        "bytes are whole"
    )
    for wrong in ({"value": "nan"}, {"value": "-1"}, {"value": "x"}, {"ip": "10.0.0.1"}):
        assert changer.post("/security/quota/set", params=chosen | wrong, data=form).status_code == 400, wrong
    assert changer.get("/security/quota", params=chosen | {"key": "moon"}).status_code in (400, 502)
    done = changer.post("/security/quota/set", params=chosen, data=form)
    assert done.status_code == 200, done.text
    assert changer.post("/security/quota/set", params=chosen, data=form).status_code == 409
    with Client(secured.bootstrap_servers) as client:
        rows = [row for row in list_quotas(client) if len(row.entity) == 2]
        assert [(row.entity, dict(row.values)) for row in rows] == [
            ((("client-id", "etl"), ("user", "dan")), {"producer_byte_rate": 2048})
        ]
    listed = changer.get("/security/quotas").text
    assert "/security/quota?user=dan&amp;client_id=etl&amp;key=producer_byte_rate&amp;value=2048" in listed
    assert "/security/quota?default_client_id=1&amp;key=consumer_byte_rate&amp;value=1048576" in listed
    removed = chosen | {"value": ""}
    assert changer.post("/security/quota/set", params=removed, data=form | {"was": "2048"}).status_code == 200
    assert changer.get("/security/quotas.json?kind=user").json()["quotas"]["rows"] == []
    lines = lines_of(tmp_path / "audit")
    refused = [line for line in lines if line["outcome"] == "refused"]
    assert {(line["user"], line["host"], line["for_user"], line["client_id"]) for line in refused} == {
        (*RUNS, "dan", "etl")
    }
    last = lines[-1]
    assert (last["action"], last["from"], last["to"]) == ("set-quota", "2048", "none")


def test_a_cluster_without_authorizer_says_what_to_set(broker: Broker) -> None:
    with visiting(broker.bootstrap_servers) as reader:
        assert "authorizer.class.name" in reader.get("/security").text
        assert reader.get("/security.json").json()["has_authorizer"] is False
        preview = reader.get("/security/acl?principal=User:ann&resource=orders")
        assert (preview.status_code, "authorizer.class.name" in preview.text) == (200, True)
        for path in ("/security/users", "/security/quotas", "/security/acl", "/security/user", "/security/quota"):
            assert reader.get(path).status_code == 200, path
