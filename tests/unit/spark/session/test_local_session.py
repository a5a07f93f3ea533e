"""Servers of Spark Connect that are not there."""

from __future__ import annotations

import socket

import pytest

from oncelog.spark.session import local_session
from oncelog.spark.session.errors import SparkSourceError
from oncelog.spark.session.local_session import _check_listening


def test_a_server_that_is_not_there_is_told_without_error_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_session, "getproxies", dict)
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        url = "sc://{}:{}".format(*taken.getsockname())
        with pytest.raises(SparkSourceError, match=f"^no Spark Connect server answers at {url}: connection refused; "):
            _check_listening(f"{url}/;token=hidden")
