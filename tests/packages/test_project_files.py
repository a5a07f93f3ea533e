"""Files about the project: workflows, forms, citation, deprecations."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import oncelog
from oncelog.core.configs.own_keys import OWN_KEYS
from tests.interop.test_metrics import DOCUMENTATION
from tests.packages.builds import ROOT
from tests.packages.tools import ACTIONLINT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
_PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_grants_little_pins_actions_and_calls_targets_that_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    workflow = read(path)
    assert "has not run yet" in text.partition("name:")[0]
    assert workflow["permissions"] == {}
    for line in text.splitlines():
        assert "uses:" not in line or _PINNED.search(line), line
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        targets = [
            word for step in job["steps"] for word in re.findall(r"^make ([a-z -]+)$", step.get("run", ""), re.M)
        ]
        names = {name for words in targets for name in words.split()}
        names |= set(job.get("strategy", {}).get("matrix", {}).get("target", ()))
        assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in names), names


def test_only_the_publishing_jobs_can_publish() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    jobs = read(ROOT / ".github/workflows/release.yml")["jobs"]
    publish, publish_image = jobs["publish"], jobs["publish-image"]
    assert {name for name, job in jobs.items() if "environment" in job} == {"publish", "publish-image"}
    assert publish["environment"] == publish_image["environment"] == "release"
    assert publish["permissions"] == {"id-token": "write"}
    assert publish_image["permissions"] == {"packages": "write"}
    assert set(publish["needs"]) == set(jobs) - {"publish", "publish-image"}
    assert publish_image["needs"] == ["publish"]
    assert not any("run" in step for step in publish["steps"])
    assert not any(job["permissions"].get("packages") for name, job in jobs.items() if name != "publish-image")
    assert "secrets." not in text
    assert text.count("github.token") == 1


@pytest.mark.peer("actionlint")
@pytest.mark.slow
def test_actionlint_accepts_the_workflows() -> None:
    command = [ACTIONLINT.home() / "actionlint", "-no-color", "-shellcheck=", *WORKFLOWS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.packages
@pytest.mark.slow
def test_zizmor_accepts_the_workflows() -> None:
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "--quiet", "tool", "run", "zizmor", "--offline", "--no-progress", "--pedantic", ".github"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_forms_have_the_fields_that_a_form_needs() -> None:
    forms = [path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert {path.stem for path in forms} == {"bug", "feature"}
    for path in forms:
        form = read(path)
        assert form["name"]
        assert form["description"]
        fields = [field["id"] for field in form["body"]]
        assert len(set(fields)) == len(fields)


def test_the_citation_is_of_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == oncelog.__version__
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)


def test_each_deprecation_says_which_version_removes_it() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    section = changelog.partition("### Deprecated\n")[2].partition("\n### ")[0]
    entries = [" ".join(entry.split()) for entry in section.split("\n- ")[1:]]
    assert entries
    assert all(re.search(r"removed in 0\.\d+", entry) for entry in entries), entries
    old_keys = [key for key in OWN_KEYS if key.replaced_by is not None]
    assert old_keys
    assert all(key.name in section and "removed in 0." in str(key.documentation) for key in old_keys)
    rows = [line for line in DOCUMENTATION.read_text("utf-8").splitlines() if "deprecated" in line]
    assert rows
    assert all("removed in 0." in row for row in rows), rows
