"""A home for Spark has PySpark's programs, jars and modules, and no archive that is compiled at every start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from oncelog.spark.session.spark_home import VARIABLE, create_unpacked_home, unpacked_home

INSTALLED = Path(next(iter(pyspark.__path__)))


def test_it_has_what_spark_starts_from(tmp_path: Path) -> None:
    assert create_unpacked_home(tmp_path)
    assert os.access(tmp_path / "bin" / "spark-submit", os.X_OK)
    assert os.listdir(tmp_path / "jars") == os.listdir(INSTALLED / "jars")


@pytest.mark.slow
def test_python_finds_modules_with_byte_code_where_the_jvm_tells_it_to_look(tmp_path: Path) -> None:
    archives = sorted(path.name for path in (INSTALLED / "python" / "lib").glob("*.zip"))
    assert create_unpacked_home(tmp_path)
    paths = [tmp_path / "python" / "lib" / name for name in archives]
    assert all(path.is_dir() for path in paths)
    told = "import py4j, pyspark; print(py4j.__file__, pyspark.__file__, bool(pyspark.__cached__))"
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PATH": ""}
    printed = subprocess.check_output([sys.executable, "-c", told], env=environment, text=True).split()
    places = [path / package / "__init__.py" for path, package in zip(paths, ("py4j", "pyspark"), strict=True)]
    assert printed == [*map(str, places), "True"]


def test_only_a_session_of_this_process_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    for master in ("spark://somewhere:7077", "yarn", None):
        with unpacked_home(master):
            assert VARIABLE not in os.environ
    with unpacked_home("local[2]"):
        assert Path(os.environ[VARIABLE], "bin", "spark-submit").exists()
    assert VARIABLE not in os.environ


def test_a_home_that_is_named_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/opt/spark")
    with unpacked_home("local[*]"):
        assert os.environ[VARIABLE] == "/opt/spark"
