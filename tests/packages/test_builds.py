"""A build is the same everywhere, and contains what a package index, a lawyer and a scanner look for."""

from __future__ import annotations

import email
import email.message
import hashlib
import json
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from codegen.distribution import KAFKA_VERSION, REPOSITORY, bill_of_materials, with_absolute_links
from markdown_it import MarkdownIt
from typer.testing import CliRunner

import oncelog
from oncelog.cli.commands import app
from tests.packages.builds import ROOT, build


@pytest.mark.slow
@pytest.mark.integration
def test_builds_of_equal_sources_are_equal_and_complete(tmp_path: Path) -> None:
    """The second build is made from the first one's source distribution: other times, rights, folder and zone."""
    first = build(ROOT, tmp_path / "first")
    with tarfile.open(first.sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    for number, path in enumerate(sorted(source.rglob("*"))):
        path.touch() if number % 2 else path.chmod(path.stat().st_mode & ~0o044)
    second = build(source, tmp_path / "second", umask=0o077, zone="Pacific/Chatham")
    assert first.wheel.read_bytes() == second.wheel.read_bytes()
    assert first.sdist.read_bytes() == second.sdist.read_bytes()
    with zipfile.ZipFile(first.wheel) as wheel:
        names = wheel.namelist()
        metadata = _read(wheel, names, "METADATA")
        bill = json.loads(
            wheel.read(next(name for name in names if name.endswith(".dist-info/sboms/oncelog.cdx.json")))
        )
        _check_files(wheel, names)
    _check_metadata(metadata)
    assert bill == bill_of_materials(ROOT, oncelog.__version__)
    assert all((name in names) for name in _locations(bill))


def _read(wheel: zipfile.ZipFile, names: list[str], name: str) -> email.message.Message:
    (path,) = (path for path in names if path.endswith(f".dist-info/{name}"))
    return email.message_from_string(wheel.read(path).decode("utf-8"))


def _check_files(wheel: zipfile.ZipFile, names: list[str]) -> None:
    """Each packaged file of the checkout is there, licences as well, and nothing of the tests."""
    posixes = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    expected = {name for name in posixes if "__pycache__/" not in name and ".egg-info/" not in name}
    assert expected == {name for name in names if not name.startswith("oncelog-")}
    licences = {name.rpartition("/")[2] for name in names if ".dist-info/licenses/" in name}
    assert licences == {"LICENSE", "NOTICE", "htmx.LICENSE", "htmx-ext-sse.LICENSE"}
    (entry_points,) = (wheel.read(name).decode() for name in names if name.endswith("/entry_points.txt"))
    assert "oncelog = oncelog.cli.main:run" in entry_points


def _check_metadata(metadata: email.message.Message) -> None:
    assert metadata["Version"] == oncelog.__version__
    assert metadata["License-Expression"] == "Apache-2.0 AND 0BSD"
    assert metadata["Requires-Python"] == ">=3.11"
    assert {line.partition(",")[0] for line in metadata.get_all("Project-URL", [])} >= {
        "Homepage",
        "Documentation",
        "Source",
        "Issues",
        "Changelog",
    }
    pythons = {line for line in metadata.get_all("Classifier", []) if line.startswith("Programming Language :: Python")}
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= pythons
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == with_absolute_links((ROOT / "README.md").read_text("utf-8"))


def _locations(bill: dict[str, Any]) -> list[str]:
    return [place["location"] for part in bill["components"] for place in part["evidence"]["occurrences"]]


def test_the_bill_of_materials_names_every_vendored_file_with_its_licence() -> None:
    bill = bill_of_materials(ROOT, "1.2.3")
    places = _locations(bill)
    assert len(places) == len(set(places)) == 3
    for part in bill["components"]:
        assert part["licenses"], part["name"]
        for place in part["evidence"]["occurrences"]:
            path = ROOT / "src" / place["location"]
            assert path.is_file()
            for digest in part.get("hashes", []):
                assert hashlib.sha256(path.read_bytes()).hexdigest() == digest["content"]
    script = (ROOT / "src/oncelog/console/static/vendor/htmx.min.js").read_text("utf-8")
    assert f'version:"{bill["components"][0]["version"]}"' in script
    keys = (ROOT / "src/oncelog/core/configs/kafka_keys.py").read_text("utf-8")
    assert KAFKA_VERSION in keys


def test_the_bill_of_materials_refuses_an_unknown_vendored_file(tmp_path: Path) -> None:
    folder = tmp_path / "src/oncelog/console/static/vendor"
    folder.mkdir(parents=True)
    (folder / "other.js").write_text("", "utf-8")
    with pytest.raises(ValueError, match=r"vendor has other\.js: adapt VENDORED"):
        bill_of_materials(tmp_path, "1.2.3")


def test_the_long_description_links_only_to_addresses() -> None:
    description = with_absolute_links((ROOT / "README.md").read_text("utf-8"))
    targets = [
        str(child.attrs.get("href") or child.attrs.get("src"))
        for token in MarkdownIt().enable("table").parse(description)
        for child in token.children or ()
        if child.type in ("link_open", "image")
    ]
    assert targets
    assert all(re.match(r"https?://", target) for target in targets), targets
    inside = [target.removeprefix(f"{REPOSITORY}/") for target in targets if target.startswith(f"{REPOSITORY}/")]
    for target in inside:
        path = re.sub(r"^(?:raw|blob)/main/|#.*", "", target)
        assert (ROOT / path).exists(), target
    assert any(target.startswith("raw/main/docs/") for target in inside)


def test_the_version_is_written_once() -> None:
    """All others read it: the metadata, the command line, ApiVersions, the documentation, the citation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "version" in project["dynamic"]
    assert CliRunner().invoke(app, ["--version"]).stdout == f"oncelog {oncelog.__version__}\n"
    assert "release = version = __version__" in (ROOT / "codegen/site/conf.py").read_text("utf-8")
    assert f"## [{oncelog.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
