"""A data directory after a refused start."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.node.assembly import StartRefused
from oncelog.node.listeners.broker_settings import read_settings
from oncelog.runtime.data.data_directory import open_data_directory
from oncelog.runtime.server import Server


@pytest.mark.parametrize("tree", [{}, {"oncelog.tree.path": "shared.db"}])
def test_logs_without_a_tree_are_refused_before_an_empty_tree_is_made(tmp_path: Path, tree: dict[str, str]) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "00000000000000000000.log").touch()
    configs = {key: str(tmp_path / name) for key, name in tree.items()}
    with pytest.raises(StartRefused, match=r"tree is empty, but the directory has logs \(t-0\)"):
        open_data_directory(read_settings({"log.dirs": str(tmp_path), **configs}))
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock" and path.name != ".lock"] == ["t-0"]
    (tmp_path / "t-0" / "00000000000000000000.log").unlink()
    open_data_directory(read_settings({"log.dirs": str(tmp_path), **configs})).release()


def test_clients_see_the_absolute_path_of_a_relative_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = Server(read_settings({"log.dirs": "data"}))
    assert server.settings.data_directory == str(tmp_path / "data")
