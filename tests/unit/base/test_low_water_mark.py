"""The low-water mark is used where a wait for it cannot hang, and nowhere else."""

from __future__ import annotations

import socket

import pytest

from oncelog.base import low_water_mark


@pytest.mark.parametrize(
    ("platform", "release", "is_heeded"),
    [
        ("linux", "6.18.44-fc-v595", True),
        ("linux", "5.12", True),
        ("linux", "5.11.22-generic", False),
        ("linux", "4.18.0-553.el8_10.x86_64", False),
        ("linux", "unknown", False),
        ("darwin", "23.5.0", False),
        ("win32", "", False),
    ],
)
def test_systems_that_heed_it(platform: str, release: str, is_heeded: bool) -> None:
    assert low_water_mark._is_heeded(platform, release) == is_heeded


def test_a_socket_that_has_ended_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_water_mark, "HAS_LOW_WATER_MARK", True)
    with socket.socket() as ended:
        pass
    assert not low_water_mark.set_low_water_mark(ended, 100)


def test_elsewhere_the_socket_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_water_mark, "HAS_LOW_WATER_MARK", False)
    assert not low_water_mark.set_low_water_mark(object(), 100)
