"""Services that all requests of a console share: the cluster, templates, audit log, streams, downloads and samples.

Modules that the first page does not need are imported on first use: loading them takes longer than that page.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from jinja2 import Environment
from starlette.requests import Request

from oncelog.admin.transactions.audit_trail import Audit, audit_file, no_audit
from oncelog.client.blocking.client import Client
from oncelog.console.admission.refusals import Refusals
from oncelog.console.cluster.access import CLIENT_SETTINGS, ClusterAccess
from oncelog.console.cluster.diagnoses import Diagnoses
from oncelog.console.cluster.rates import Rates
from oncelog.console.cluster.recent import Recent
from oncelog.console.formats.decoder_process import DecodingProcess
from oncelog.console.metrics.sampler import Sampler
from oncelog.console.page import PageRequest
from oncelog.console.pages import PAGES
from oncelog.console.query import Query
from oncelog.console.rendering import environment
from oncelog.console.settings import Settings
from oncelog.console.streaming.event_streams import Streams
from oncelog.console.streaming.pump import Shutdown

if TYPE_CHECKING:
    from oncelog.console.audits.report_store import AuditReports
    from oncelog.console.downloads.routes import Downloads


class Services:
    def __init__(self, settings: Settings, connect: Callable[[], Client] | None, decoding: DecodingProcess) -> None:
        config = CLIENT_SETTINGS | dict(settings.client)
        self.settings = settings
        self._lock = threading.Lock()
        self._audits: AuditReports | None = None
        audit: Audit = no_audit if settings.audit_log is None else audit_file(settings.audit_log)
        self.cluster = ClusterAccess(
            connect or (lambda: Client(settings.bootstrap, config=config)), settings.workers, settings.patience_s
        )
        self.templates: Environment = environment(
            pages=[page for page in PAGES if page.path.count("/") == 1],
            allow_changes=settings.allow_changes,
            bootstrap=settings.bootstrap,
            command_options=settings.command_options,
        )
        self.recent = Recent()
        self.rates = Rates()
        self.diagnoses = Diagnoses(self.cluster.new_client, settings.command_options)
        self.sampler: Sampler | None = None
        if settings.sample_every_s:
            self.sampler = Sampler(self.cluster.new_client, _checked(settings.metrics_urls), settings.sample_every_s)
        self.decoding = decoding
        self.shutdown_signal = Shutdown()
        self.streams = Streams(self.cluster, self.templates, self.page_request_of, self.shutdown_signal)
        self.audit = audit
        self.refusals = Refusals(self.templates, audit)

    @cached_property
    def downloads(self) -> Downloads:
        from oncelog.console.downloads.routes import Downloads

        return Downloads(self.cluster, self.shutdown_signal)

    def audits(self) -> AuditReports:
        with self._lock:
            if self._audits is None:
                from oncelog.console.audits.report_store import AuditReports

                settings = self.settings
                self._audits = AuditReports(settings.audit_reports, settings.audit_data, audit=self.audit)
            return self._audits

    def close(self) -> None:
        if self.sampler is not None:
            self.sampler.close()
        self.streams.close()
        if "downloads" in self.__dict__:
            self.downloads.close()
        if self._audits is not None:
            self._audits.close()
        self.diagnoses.close()
        self.cluster.close()
        self.decoding.close()

    def end(self) -> None:
        self.shutdown_signal.begin()
        self.cluster.end()

    def page_request_of(self, request: Request) -> PageRequest:
        as_json = request.url.path.endswith(".json")
        query = Query(request.query_params)
        return PageRequest(
            *(query, self.settings, as_json, self.recent, self.decoding, self.audits, self.sampler, self.rates),
            diagnoses=self.diagnoses,
        )


def _checked(urls: Sequence[str]) -> list[str]:
    """Validate addresses of metrics ports. Raises ConfigError."""
    if not urls:
        return []
    from oncelog.console.metrics.broker_ports import checked_address

    return [checked_address(url) for url in urls]
