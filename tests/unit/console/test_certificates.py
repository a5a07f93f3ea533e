"""Certificates of a console that cannot be used end its start with one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.applications import Starlette

from oncelog.client.errors import ConfigError
from oncelog.console.serving import server_of
from oncelog.console.settings import Settings


def start_with(certificate: Path, key: Path) -> None:
    server_of(Starlette(), Settings("none:1", tls_certificate=certificate, tls_key=key))


def test_files_that_are_no_certificate_and_key_are_named(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    with pytest.raises(ConfigError, match=f"^cannot read {certificate}: "):
        start_with(certificate, key)
    certificate.write_text("no PEM")
    with pytest.raises(ConfigError, match=f"^cannot read {key}: "):
        start_with(certificate, key)
    key.write_text("no PEM")
    with pytest.raises(ConfigError, match=f"^--tls-cert {certificate} and --tls-key {key} are not a PEM certificate"):
        start_with(certificate, key)
