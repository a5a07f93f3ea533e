"""The Python packages of the image: its lock file, the wheel's files, names and versions."""

from __future__ import annotations

import re
import tomllib
import zipfile
from pathlib import Path

from codegen.image.__main__ import REQUIREMENTS
from codegen.image.python_packages import BUILT, PythonPackage, installed, wheel_tree, with_true_records
from codegen.image.tree import file

from tests.packages.builds import ROOT


def locked(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", path.read_text("utf-8"), re.MULTILINE))


def test_the_lock_of_the_image_agrees_with_that_of_development_and_has_hashes() -> None:
    image, development = locked(REQUIREMENTS), locked(ROOT / "requirements" / "dev.txt")
    assert image.items() <= development.items()
    text = REQUIREMENTS.read_text("utf-8")
    assert BUILT in image
    assert all("--hash=sha256:" in block for block in re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:])
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for extra in ("cluster", "console", "registry", "security"):
        names = {re.split(r"[\[>]", requirement)[0] for requirement in extras[extra]}
        assert names <= image.keys(), f"make lock: requirements/image.txt lacks a package of {extra}"


def test_a_record_names_only_files_that_are_there() -> None:
    record = "x/__init__.py,sha256=a,1\nbin/x,sha256=b,2\nx-1.dist-info/RECORD,,\n"
    tree = {"x/__init__.py": file(""), "x-1.dist-info/RECORD": file(record), "x/RECORD": file("unchanged")}
    assert with_true_records(tree) == {
        **tree,
        "x-1.dist-info/RECORD": file("x-1.dist-info/RECORD,,\nx/__init__.py,sha256=a,1\n"),
    }


def test_packages_are_found_by_their_metadata(tmp_path: Path) -> None:
    path = tmp_path / "pure_sasl-0.6.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("pure_sasl-0.6.2.dist-info/METADATA", "Metadata-Version: 2.4\nName: pure_sasl\nVersion: 0.6.2\n")
        wheel.writestr("puresasl/__init__.py", "")
    tree = wheel_tree(path)
    assert installed(tree) == [PythonPackage("pure-sasl", "0.6.2")]
    assert tree["puresasl/__init__.py"] == file("")
