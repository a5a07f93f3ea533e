"""Several clusters in one console: addresses, a dead cluster beside a live one, and what the clusters share."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

import oncelog.console
from oncelog.admin.topics import NewTopic, create_topic
from oncelog.cli.processes.console_clusters import clusters_of
from oncelog.client.blocking import Client
from oncelog.client.errors import ConfigError
from oncelog.console.application import application
from oncelog.console.pages import PAGES
from oncelog.console.settings import MAX_CLUSTERS, NamedCluster, Settings
from oncelog.testing.broker import Broker
from oncelog.web.logins import Token
from tests.unit.console.visits import lines_of, token_of, visiting
from tests.waiting import wait_until

NOWHERE = "127.0.0.1:9"
TEMPLATES = Path(oncelog.console.__file__).parent / "templates"


@pytest.fixture
def two(broker: Broker, tmp_path: Path) -> Iterator[TestClient]:
    """A console of a live cluster and of one that is down."""
    clusters = (NamedCluster("live", broker.bootstrap_servers), NamedCluster("down", NOWHERE))
    with visiting("", audit_log=tmp_path / "audit", clusters=clusters, patience_s=5.0) as visitor:
        yield visitor


def test_templates_name_no_address_without_the_prefix_of_the_cluster() -> None:
    literal = re.compile(r"""(?:href|action|hx-get|hx-post|src|sse-connect)=["'](/[^"']*)""")
    for template in sorted(TEMPLATES.glob("*.html")):
        for address in literal.findall(template.read_text("utf-8")):
            assert address.startswith(("/static/", "/login", "/clusters", "/c/")), f"{template.name}: {address}"


@pytest.mark.slow
def test_each_cluster_has_all_pages_below_its_name(two: TestClient, broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("of-live", partitions=1, replication_factor=1))
    assert str(two.get("/").url).endswith("/clusters")
    assert str(two.get("/c/live").url).endswith("/c/live/overview")
    assert two.get("/topics").status_code == 404, "addresses of one cluster"
    assert two.get("/c/other/topics").status_code == 404
    rows = two.get("/c/live/topics.json?filter=of-live").json()["topics"]["rows"]
    assert [row["name"] for row in rows] == ["of-live"]
    for page in PAGES:
        text = two.get(f"/c/live{page.path}").text
        for link in re.findall(r'(?:href|action|hx-get)="(/[^"]*)"', text):
            assert link.startswith(("/c/", "/static/", "/clusters")), (page.path, link)
    topics = two.get("/c/live/topics?filter=of-live").text
    assert 'href="/c/live/topics/one?name=of-live"' in topics
    assert 'href="/c/down/topics"' in topics, "the switch keeps the page"
    assert re.search(r'<a href="/c/live/topics" aria-current="page"', topics)


@pytest.mark.slow
def test_a_cluster_that_is_down_does_not_delay_the_others(two: TestClient) -> None:
    wait_until(lambda: two.get("/clusters.json").json()["rows"][1]["error"], "the failure of the other")
    began = time.monotonic()
    live, down = two.get("/clusters.json").json()["rows"]
    page = two.get("/clusters").text
    assert time.monotonic() - began < 5, "both looks; a page waits nine seconds for its first diagnosis"
    assert (live["name"], live["error"], live["counts"]["brokers_up"]) == ("live", None, 1)
    assert (down["name"], down["age_ms"]) == ("down", None)
    assert "no answer" in page
    assert two.get("/c/down/topics").status_code == 503
    assert two.get("/c/live/topics").status_code == 200


@pytest.mark.slow
def test_the_audit_log_names_the_cluster(two: TestClient, tmp_path: Path) -> None:
    form = {"token": token_of(two, "/c/live/topics/change"), "name": "made-in-live", "partitions": "1"}
    assert two.post("/c/live/topics/create", data=form | {"token": "0" * 64}).status_code == 403
    assert two.post("/c/live/topics/create", data=form).status_code == 200
    assert two.post("/c/down/topics/create", data=form).status_code == 503
    lines = lines_of(tmp_path / "audit")
    assert [(line["cluster"], line["outcome"]) for line in lines] == [
        ("live", "refused"),
        ("live", "sending"),
        ("live", "done"),
        ("down", "sending"),
        ("down", "failed"),
    ]


@pytest.mark.slow
def test_no_address_of_a_cluster_passes_the_gate_without_its_checks() -> None:
    clusters = (NamedCluster("a", NOWHERE), NamedCluster("b", NOWHERE))
    app = application(Settings("", clusters=clusters))
    mounts = [route for route in app.routes if isinstance(route, Mount) and route.path.startswith("/c/")]
    paths = [mount.path + route.path for mount in mounts for route in mount.routes or () if isinstance(route, Route)]
    assert len(paths) > 2 * len(PAGES)
    with TestClient(app, base_url="http://127.0.0.1:8080") as visitor:
        for path in paths:
            assert visitor.post(path, data={"token": "x"}).status_code == 403, path
    secret = b"0123456789abcdef"
    with visiting("", clusters=clusters, login=Token(secret)) as stranger:
        for path in ("/clusters", "/clusters.json", *paths):
            assert stranger.get(path).status_code == 401, path
        login = stranger.post("/login", data={"secret": secret.decode(), "return_to": "/c/b/metrics"})
        assert str(login.url).endswith("/c/b/metrics"), "one login for all clusters"
        assert stranger.get("/c/a/metrics").status_code == 200


@pytest.mark.slow
def test_work_of_the_console_returns_to_the_cluster_it_came_from(two: TestClient) -> None:
    token = token_of(two, "/c/live/audit")
    files = {"token": (None, token), "report": ("r.json", b"{}")}
    answer = two.post("/c/live/tasks/audit/upload", files=files)
    assert answer.status_code == 400, "read, and no report"
    assert two.post("/c/live/tasks/audit/cancel", data={"token": token, "key": "none"}).status_code == 404


@pytest.mark.slow
def test_a_cluster_with_a_login_stands_beside_one_without(broker: Broker, tmp_path: Path) -> None:
    secret = "scram-secret-of-the-reader"
    with Broker(security="scram") as secured:
        secured.add_user("reader", secret)
        config = secured.client_config("reader", java=True)
        file = tmp_path / "secured.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        named = (f"secured={secured.bootstrap_servers}", f"plain={broker.bootstrap_servers}")
        with visiting("", clusters=clusters_of(named, (f"secured={file}",), ())) as visitor:
            for name in ("secured", "plain"):
                assert visitor.get(f"/c/{name}/topics").status_code == 200, name
            wait_until(
                lambda: all(row["age_ms"] is not None for row in visitor.get("/clusters.json").json()["rows"]),
                "a diagnosis of both",
            )
            texts = [visitor.get(path).text for path in ("/clusters", "/clusters.json", "/c/secured/overview")]
    assert not [text for text in texts if secret in text]


def test_one_named_cluster_keeps_the_addresses_of_one() -> None:
    (own,) = Settings("", clusters=(NamedCluster("only", NOWHERE),)).by_cluster()
    assert (own.prefix, own.cluster, own.bootstrap) == ("", "only", NOWHERE)


def test_settings_of_all_clusters_are_refused_beside_named_ones(capsys: pytest.CaptureFixture[str]) -> None:
    from oncelog.cli.main import invoke
    from oncelog.cli.processes.console_process import read_console

    named = ["--cluster", "a=127.0.0.1:9", "--cluster", "b=127.0.0.1:9"]
    assert read_console(named) == {"clusters": ["a=127.0.0.1:9", "b=127.0.0.1:9"]}
    assert read_console([*named, "-b", "c:1"]) is None, "typer's branch judges it"
    for option in (["-b", "c:1"], ["-X", "a=b"], ["--command-config", "nothing"]):
        assert invoke(["console", *named, *option]) == 2
        assert "--cluster-config NAME=FILE" in capsys.readouterr().err


def test_names_of_clusters_are_checked() -> None:
    for names in (("a/b",), ("",), ("a b",), ("a" * 65,), (".",), ("a", "a"), tuple(map(str, range(MAX_CLUSTERS + 1)))):
        with pytest.raises(ConfigError):
            Settings("", clusters=tuple(NamedCluster(name, NOWHERE) for name in names))


def test_clusters_of_the_command_line_have_their_own_client_settings(tmp_path: Path) -> None:
    config = tmp_path / "live.properties"
    config.write_text("security.protocol=SASL_SSL\nsasl.jaas.config=secret\nbootstrap.servers=other:1\n")
    live, test = clusters_of(
        ("live=kafka-1:9092,kafka-2:9092", "test=localhost:9092"),
        (f"live={config}",),
        ("live=http://kafka-1:9100/metrics",),
    )
    assert (live.bootstrap, test.bootstrap) == ("kafka-1:9092,kafka-2:9092", "localhost:9092")
    assert live.client == {"security.protocol": "SASL_SSL", "sasl.jaas.config": "secret"}
    assert test.client == {}
    assert live.metrics_urls == ("http://kafka-1:9100/metrics",)
    assert f"--command-config {config}" in live.command_options
    assert "secret" not in repr(live)
    for clusters, configs, urls in (
        (("live",), (), ()),
        (("live=",), (), ()),
        (("live=no port",), (), ()),
        (("live=a:1",), ("live",), ()),
        (("live=a:1",), (f"test={config}",), ()),
        (("live=a:1",), (f"live={tmp_path / 'none'}",), ()),
        (("live=a:1",), (), ("http://a:1/metrics",)),
        ((), (f"live={config}",), ()),
    ):
        with pytest.raises(ConfigError):
            clusters_of(clusters, configs, urls)
