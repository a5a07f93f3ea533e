"""Alert rules and the dashboard: their metrics exist with these labels, and promtool accepts and tests them.

`tests/interop/test_metrics.py` holds the documented metrics equal to those that a broker serves; here they are the
measure.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.interop.test_metrics import documented
from tests.packages.builds import ROOT
from tests.packages.tools import PROMTOOL

RULES = ROOT / "packaging" / "prometheus" / "oncelog.rules.yml"
DASHBOARD = ROOT / "packaging" / "grafana" / "oncelog.json"
OF_PROMETHEUS = {"job", "instance", "le"}
DEPRECATED = {"oncelog_orphaned_transactions_found_total", "oncelog_orphaned_transactions_aborted_total"}
_SERIES = re.compile(r"\b(oncelog_\w+?)(_bucket|_sum|_count)?(?:\{([^}]*)\})?(?![\w{])")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")
_IN_TEXT = re.compile(r"\{\{ *\$?(?:labels\.)?(\w+)")


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"] for rule in group["rules"]]


def targets() -> Iterator[tuple[str, str]]:
    """The queries of the dashboard, and their legends."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]


def check_query(query: str, text: str) -> None:
    """Each metric is served, and each label of the query and of ``text`` belongs to its metrics."""
    metrics = documented()
    labels = set(OF_PROMETHEUS)
    for name, suffix, matchers in _SERIES.findall(query):
        name = name if name in metrics or not suffix else name + suffix if name + suffix in metrics else name
        assert name in metrics, query
        assert name not in DEPRECATED, query
        own = metrics[name] | OF_PROMETHEUS
        labels |= metrics[name]
        assert set(re.findall(r"(\w+) *(?:=~|!~|!=|=)", matchers)) <= own, query
    for names in _GROUPING.findall(query):
        assert set(re.findall(r"\w+", names)) <= labels, query
    assert set(_IN_TEXT.findall(text)) - {"value"} <= labels, text


def test_alerts_use_metrics_and_labels_that_brokers_serve() -> None:
    rules = alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert "oncelog_" in rule["expr"] or rule["expr"].startswith("up{")
        check_query(rule["expr"], rule["annotations"]["summary"])


def test_runbooks_of_alerts_exist() -> None:
    for rule in alerts():
        for page in re.findall(r"docs/[\w/-]+\.md", rule["annotations"]["runbook"]):
            assert (ROOT / page).is_file(), page


def test_the_dashboard_uses_metrics_and_labels_that_brokers_serve() -> None:
    queries = list(targets())
    assert len(queries) >= 20
    for query, legend in queries:
        check_query(query, legend)


def test_panels_have_places_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (place["x"] + x, place["y"] + y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["w"])
        for y in range(place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize(
    "query", ["oncelog_nothing > 0", 'oncelog_connections{topic="t"}', "sum by (topic) (oncelog_connections)"]
)
def test_the_check_finds_what_brokers_do_not_serve(query: str) -> None:
    with pytest.raises(AssertionError):
        check_query(query, "")


@pytest.mark.peer("promtool")
@pytest.mark.slow
def test_promtool_accepts_and_tests_the_rules_and_the_queries(tmp_path: Path) -> None:
    promtool = PROMTOOL.home() / "usr" / "bin" / "promtool"
    queries = [query.replace("$__rate_interval", "5m") for query, _ in targets()]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "dashboard.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")
    for command in (
        ("check", "rules", RULES.name, str(tmp_path / "dashboard.yml")),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "oncelog.rules.test.yml"),
    ):
        done = subprocess.run([promtool, *command], cwd=RULES.parent, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
