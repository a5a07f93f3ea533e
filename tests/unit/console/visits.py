"""A visitor without a browser: keeps its cookies, reads the token of a page and sends forms with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from oncelog.console.application import application
from oncelog.console.settings import Settings

ORIGIN = "http://127.0.0.1:8080"


@contextmanager
def visiting(bootstrap: str, *, audit_log: Path | None = None, **settings: Any) -> Iterator[TestClient]:
    """A visitor of a console; one that may change things if there is an ``audit_log``."""
    made = Settings(bootstrap, allow_changes=audit_log is not None, audit_log=audit_log, **settings)
    with TestClient(application(made), base_url=ORIGIN) as visitor:
        yield visitor


def lines_of(audit: Path) -> list[dict[str, Any]]:
    """The entries of an audit log."""
    return [json.loads(line) for line in audit.read_text().splitlines()]


def token_of(visitor: TestClient, path: str) -> str:
    """The token in the forms of a page."""
    match = re.search(r'name="token" value="([0-9a-f]+)"', visitor.get(path).text)
    assert match is not None, f"no form in {path}"
    return match[1]
