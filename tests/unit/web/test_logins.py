"""Files of logins that could never match are refused at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncelog.client.errors import ConfigError
from oncelog.web.logins import login_of


@pytest.mark.parametrize("token", ["geheimnis-ü-0123456789", "0123456789\t0123456789"])
def test_a_token_that_no_client_sends_is_refused(tmp_path: Path, token: str) -> None:
    path = tmp_path / "token"
    path.write_text(token, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="other than printable ASCII"):
        login_of("token", str(path))


def test_a_token_is_sent_as_a_bearer_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef~+/=\n", encoding="utf-8")
    path.chmod(0o600)
    login = login_of("token", str(path))
    assert login.user_of({"authorization": "Bearer 0123456789abcdef~+/="}) == "token"
    assert login.user_of({"authorization": "Bearer 0123456789abcdef"}) is None
