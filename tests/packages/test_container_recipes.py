"""The recipes for services in CI, in docs/containers.md: valid for their readers, and true of a broker."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from codegen.image import contents

import oncelog
from oncelog.cli.processes.broker_process import read_values, values_of_environment
from oncelog.core.configs.keys import broker_key
from oncelog.node.listeners.broker_settings import read_settings
from tests.packages.tools import ACTIONLINT
from tests.snippets.blocks import blocks_of

PAGE = "docs/containers.md"


def recipes() -> list[tuple[str, Any]]:
    """The text and the value of each block of YAML."""
    return [(block.text, yaml.safe_load(block.text)) for block in blocks_of(PAGE) if block.language == "yaml"]


def mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from mappings(inner)


def test_variables_of_the_recipes_start_a_broker_that_advertises_the_service() -> None:
    values = read_values(contents.FILES / "server.properties", None, [])
    services = [mapping for _, value in recipes() for mapping in mappings(value) if _variables(mapping)]
    assert len(services) == 2
    for service in services:
        settings = read_settings(values | values_of_environment(_variables(service), "KAFKA_"))
        (advertised,) = settings.listeners.advertised.values()
        assert (advertised.host, advertised.port) == ("oncelog", 9092)
        assert not any("unknown" in warning for warning in settings.warnings)


def _variables(mapping: Mapping[Any, Any]) -> dict[str, str]:
    return {key: value for key, value in mapping.items() if str(key).startswith("KAFKA_")}


def test_images_have_this_version() -> None:
    images = re.findall(r"\boncelog:(\d+\.\d+[\w.]+)", (contents.ROOT / PAGE).read_text("utf-8"))
    assert set(images) == {oncelog.__version__}


def test_rows_of_the_table_of_variables_are_keys() -> None:
    rows = re.findall(r"^\| `(KAFKA_\w+)` \| `([\w.-]+)` \|$", (contents.ROOT / PAGE).read_text("utf-8"), re.MULTILINE)
    assert len(rows) == 5
    for variable, key in rows:
        assert list(values_of_environment({variable: ""}, "KAFKA_")) == [key]
        assert broker_key(key) is not None


@pytest.mark.peer("actionlint")
@pytest.mark.slow
def test_actionlint_accepts_the_recipe(tmp_path: Path) -> None:
    (text,) = (text for text, value in recipes() if "jobs" in value)
    (tmp_path / "test.yml").write_text(text, "utf-8")
    command = [ACTIONLINT.home() / "actionlint", "-no-color", "-shellcheck=", "test.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
