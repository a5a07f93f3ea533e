"""Declarations of pages and actions: a path, a title and the name of the function that serves it."""

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
    from oncelog.console.cluster.diagnoses import Diagnoses
    from oncelog.console.formats.registry_schemas import RegistrySchemas
    from oncelog.console.metrics.sampler import Sampler


def _no_audits() -> AuditReports:
    from oncelog.console.audits.report_store import AuditReports

    return AuditReports((), ())


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The query of a request, and the state of the console that pages use."""

    query: Query
    settings: Settings
    as_json: bool = False
    recent: Recent = field(default_factory=Recent)
    decoding: DecodingProcess = field(default_factory=DecodingProcess)
    make_audits: Callable[[], AuditReports] = _no_audits
    sampler: Sampler | None = None
    rates: Rates = field(default_factory=Rates)
    diagnoses: Diagnoses | None = None
    registry: RegistrySchemas | None = None

    @property
    def audits(self) -> AuditReports:
        # Created on first use: importing audits takes longer than most pages.
        return self.make_audits()


Read = Callable[[Client, PageRequest], Mapping[str, Any]]
"""Returns the rows of a page, in a worker thread. Raises ClientError and BadQuery."""
Act = Callable[[Client, PageRequest, Permit, "Changes"], Mapping[str, Any]]
"""Carries out an action and returns the rows of its result page. ``PageRequest.query`` has the parameters of the
address
and the fields of the form."""


def _load(target: str) -> Any:
    """Import the function named ``module:name`` from the pages, when it is first called."""
    module, _, name = target.partition(":")
    # On first use: importing all pages takes longer than serving one.
    return getattr(import_module(f"oncelog.console.pages.{module}"), name)


@dataclass(frozen=True, slots=True)
class Page:
    """A page at ``path``, with its rows as JSON at ``path`` + ``.json``. ``live``: it refreshes itself while it is
    open. ``patience_s``: a longer time limit than usual."""

    path: str
    title: str
    target: str
    live: bool = False
    patience_s: float | None = None
    key: str = ""  # After "g" it opens the page.

    def read(self, client: Client, page_request: PageRequest) -> Mapping[str, Any]:
        """The rows of the page, in a worker thread. Raises ClientError and BadQuery."""
        read: Read = _load(self.target)
        return read(client, page_request)

    @property
    def template(self) -> str:
        return f"{self.path.strip('/').replace('/', '-')}.html"


@dataclass(frozen=True, slots=True)
class LocalPage:
    """A page of the console itself, which works without the cluster or shows its last picture."""

    path: str
    title: str
    target: str
    live: bool = False
    key: str = ""  # After "g" it opens the page.

    def read(self, page_request: PageRequest) -> Mapping[str, Any]:
        """The rows of the page, in a thread. Raises BadQuery and ClientError."""
        read: Callable[[PageRequest], Mapping[str, Any]] = _load(self.target)
        return read(page_request)

    @property
    def template(self) -> str:
        return f"{self.path.strip('/').replace('/', '-')}.html"


@dataclass(frozen=True, slots=True)
class Work:
    """The target of a form that changes no cluster; it redirects to the address returned."""

    path: str
    target: str

    def act(self, page_request: PageRequest, sender: Sender) -> str:
        """Carry it out for the sender. Raises BadQuery."""
        act: Callable[[PageRequest, Sender], str] = _load(self.target)
        return act(page_request, sender)


@dataclass(frozen=True, slots=True)
class Action:
    """The POST-only target of a form at ``path``. ``is_change``: it is audited, whatever the outcome."""

    path: str
    title: str
    target: str
    template: str
    is_change: bool = True

    def act(self, client: Client, page_request: PageRequest, permit: Permit, changes: Changes) -> Mapping[str, Any]:
        """Carry it out; returns the rows of the result page. Raises ClientError and BadQuery."""
        act: Act = _load(self.target)
        return act(client, page_request, permit, changes)
