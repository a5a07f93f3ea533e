"""The shape of pages and actions: functions of a client, by their names; what serves them is in ``application``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from oncelog.client.blocking.client import Client
from oncelog.console.admission.gate import Permit, Sender
from oncelog.console.cluster.rates import Rates
from oncelog.console.cluster.recent import Recent
from oncelog.console.formats.decoder_process import DecodingProcess
from oncelog.console.query import Query
from oncelog.console.settings import Settings

if TYPE_CHECKING:
    from oncelog.console.audits.report_store import AuditReports
    from oncelog.console.changes.audited_changes import Changes
    from oncelog.console.metrics.sampler import Sampler


def _no_audits() -> AuditReports:
    from oncelog.console.audits.report_store import AuditReports

    return AuditReports((), ())


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page: the query, and what the console knows beside it."""

    query: Query
    settings: Settings
    as_json: bool = False
    recent: Recent = field(default_factory=Recent)
    decoding: DecodingProcess = field(default_factory=DecodingProcess)
    make_audits: Callable[[], AuditReports] = _no_audits
    sampler: Sampler | None = None
    rates: Rates = field(default_factory=Rates)

    @property
    def audits(self) -> AuditReports:
        """The console's audits, made for the first that asks."""
        return self.make_audits()


Read = Callable[[Client, Asked], Mapping[str, Any]]
"""The rows of a page, in a worker's thread. Raises ClientError and BadQuery."""
Act = Callable[[Client, Asked, Permit, "Changes"], Mapping[str, Any]]
"""Does something, and returns the rows of the page that says what came of it. ``Asked.query`` has the parameters of the
address and the fields of the form."""


def _found(target: str) -> Any:
    """The function that ``module:name`` is, among the pages; imported when it is first called."""
    module, _, name = target.partition(":")
    return getattr(import_module(f"oncelog.console.pages.{module}"), name)


@dataclass(frozen=True, slots=True)
class Page:
    """A page at ``path``, and its rows as JSON at ``path`` + ``.json``. ``live``: it renews itself while it is open.
    ``patience_s``: the time that it may take, where that is more than other pages have."""

    path: str
    title: str
    target: str
    live: bool = False
    patience_s: float | None = None

    def read(self, client: Client, asked: Asked) -> Mapping[str, Any]:
        """The rows of the page, in a worker's thread. Raises ClientError and BadQuery."""
        read: Read = _found(self.target)
        return read(client, asked)

    @property
    def template(self) -> str:
        """The template's file."""
        return f"{self.path.strip('/').replace('/', '-')}.html"


@dataclass(frozen=True, slots=True)
class LocalPage:
    """A page of the console's own, which asks no cluster and is there when the cluster is not."""

    path: str
    title: str
    target: str
    live: bool = False

    def read(self, asked: Asked) -> Mapping[str, Any]:
        """The rows of the page, in a thread. Raises BadQuery."""
        read: Callable[[Asked], Mapping[str, Any]] = _found(self.target)
        return read(asked)

    @property
    def template(self) -> str:
        """The template's file."""
        return f"{self.path.strip('/').replace('/', '-')}.html"


@dataclass(frozen=True, slots=True)
class Work:
    """A form's target that makes the console work and changes no cluster; it returns the address to go on at."""

    path: str
    target: str

    def act(self, asked: Asked, sender: Sender) -> str:
        """Do it, for who asks. Raises BadQuery."""
        act: Callable[[Asked, Sender], str] = _found(self.target)
        return act(asked, sender)


@dataclass(frozen=True, slots=True)
class Action:
    """A form's target at ``path``, which takes POST only. ``is_change``: it is in the audit, whatever comes of it."""

    path: str
    title: str
    target: str
    template: str
    is_change: bool = True

    def act(self, client: Client, asked: Asked, permit: Permit, changes: Changes) -> Mapping[str, Any]:
        """Do it; the rows of the page that says what came of it. Raises ClientError and BadQuery."""
        act: Act = _found(self.target)
        return act(client, asked, permit, changes)
