"""The shape of pages and actions: functions of a client; what serves them is in ``application``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oncelog.client.blocking.client import Client
from oncelog.console.audits.shelf import AuditShelf
from oncelog.console.changes import Changes
from oncelog.console.formats.process import DecodingProcess
from oncelog.console.gate import Permit, Sender
from oncelog.console.metrics.sampler import Sampler
from oncelog.console.query import Query
from oncelog.console.rates import Rates
from oncelog.console.recent import Recent
from oncelog.console.settings import Settings


@dataclass(frozen=True, slots=True)
class Asked:
    """What a page is asked for."""

    query: Query
    settings: Settings
    as_json: bool = False
    recent: Recent = field(default_factory=Recent)
    decoding: DecodingProcess = field(default_factory=DecodingProcess)
    audits: AuditShelf = field(default_factory=lambda: AuditShelf((), ()))
    sampler: Sampler | None = None
    rates: Rates = field(default_factory=Rates)


Read = Callable[[Client, Asked], Mapping[str, Any]]
"""The rows of a page, in a worker's thread. Raises ClientError and BadQuery."""
Act = Callable[[Client, Asked, Permit, Changes], Mapping[str, Any]]
"""Does something, and returns the rows of the page that says what came of it. ``Asked.query`` has the parameters of the
address and the fields of the form."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page at ``path``, and its rows as JSON at ``path`` + ``.json``. ``live``: it renews itself while it is open.
    ``patience_s``: the time that it may take, where that is more than other pages have."""

    path: str
    title: str
    read: Read
    live: bool = False
    patience_s: float | None = None

    @property
    def template(self) -> str:
        """The template's file."""
        return f"{self.path.strip('/').replace('/', '-')}.html"


@dataclass(frozen=True, slots=True)
class LocalPage:
    """A page of the console's own, which asks no cluster and is there when the cluster is not."""

    path: str
    title: str
    read: Callable[[Asked], Mapping[str, Any]]
    live: bool = False

    @property
    def template(self) -> str:
        """The template's file."""
        return f"{self.path.strip('/').replace('/', '-')}.html"


@dataclass(frozen=True, slots=True)
class Work:
    """A form's target that makes the console work and changes no cluster; it returns the address to go on at."""

    path: str
    act: Callable[[Asked, Sender], str]
    """Takes who asks, too. Raises BadQuery."""


@dataclass(frozen=True, slots=True)
class Action:
    """A form's target at ``path``, which takes POST only. ``is_change``: it is in the audit, whatever comes of it."""

    path: str
    title: str
    act: Act
    template: str
    is_change: bool = True
