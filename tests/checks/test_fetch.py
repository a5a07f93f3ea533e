"""Downloads from other registries: each is fetched once, whoever asks; one that cannot be had is one line."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.peers import fetch as fetching
from tests.peers import supply as supplying
from tests.peers.supply import PeerMissing, Run, Supply


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fetching, "WORK", tmp_path)
    monkeypatch.setattr(supplying, "HOMES", tmp_path / "peers")
    return tmp_path


class Registry:
    """Counts what is fetched from it; answers unless it is told not to."""

    def __init__(self) -> None:
        self.fetched = 0
        self.answers = True
        self.version = b"1"

    def supply(self, *, tool: str = "sh") -> Supply:
        return Supply("Things", tool, "a registry", "things", lambda: self.version, self._recipe)

    def _recipe(self, place: Path, run: Run) -> None:
        self.fetched += 1
        run(["sh", "-c", "echo a > a.jar" if self.answers else "echo 'ERROR: nobody there' >&2; exit 1"], place)


def fetched(monkeypatch: pytest.MonkeyPatch, **supplies: Supply) -> tuple[list[str], list[str]]:
    """The names that are missing afterwards, and what was said."""
    monkeypatch.setattr(fetching, "SUPPLIES", supplies)
    messages: list[str] = []
    return fetching.fetch(list(supplies), messages.append), messages


def test_what_is_there_is_not_fetched_again_unless_its_source_changed(work, monkeypatch) -> None:
    registry = Registry()
    things = registry.supply()
    with pytest.raises(PeerMissing, match=r"Things: not fetched yet \(`make peers`"):
        things.home()
    assert fetched(monkeypatch, things=things)[0] == []
    assert (things.home() / "a.jar").exists()
    assert fetched(monkeypatch, things=things) == ([], [])
    assert registry.fetched == 1
    registry.version = b"2"
    assert things.missing()
    assert fetched(monkeypatch, things=things)[0] == []
    assert registry.fetched == 2


def test_a_tool_that_is_not_installed_is_one_line_and_the_rest_is_fetched(work, monkeypatch) -> None:
    missing, message = fetched(monkeypatch, gone=Registry().supply(tool="no-such-tool"), things=Registry().supply())
    assert missing == ["gone"]
    assert [line for line in message if "left out" in line] == ["Things: left out: no-such-tool is not installed"]
    assert message[-1].startswith("Things: ready")


def test_a_registry_that_does_not_answer_is_one_line_and_asked_again_the_next_time(work, monkeypatch) -> None:
    registry = Registry()
    registry.answers = False
    missing, message = fetched(monkeypatch, things=registry.supply())
    assert (missing, message[-1]) == (["things"], "Things: left out: sh failed: ERROR: nobody there")
    assert registry.supply().missing()
    registry.answers = True
    assert fetched(monkeypatch, things=registry.supply())[0] == []


def test_several_who_want_it_at_once_have_it_fetched_once(work, monkeypatch) -> None:
    registry = Registry()
    monkeypatch.setattr(fetching, "SUPPLIES", {"things": registry.supply()})
    askers = [threading.Thread(target=fetching.fetch, args=(["things"], lambda line: None)) for _ in range(4)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert registry.fetched == 1
    assert registry.supply().missing() is None
