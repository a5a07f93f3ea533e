"""Services that all requests about a cluster share (the cluster, templates, streams, downloads and samples), and those
that all clusters of a console share (the audit log, audits, decoding and the shutdown).

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
from oncelog.console.admission.audit_lines import of_cluster
from oncelog.console.admission.refusals import Refusals
from oncelog.console.cluster.access import CLIENT_SETTINGS, ClusterAccess
from oncelog.console.cluster.diagnoses import Diagnoses
from oncelog.console.cluster.rates import Rates
from oncelog.console.cluster.recent import Recent
from oncelog.console.formats.decoder_process import DecodingProcess
from oncelog.console.last_pictures import LastPictures
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
    from oncelog.console.formats.registry_schemas import RegistrySchemas


class Shared:
    """Services that all clusters of a console share."""

    def __init__(self, settings: Settings, decoding: DecodingProcess) -> None:
        self.settings = settings
        self.clusters = settings.by_cluster()
        self.decoding = decoding
        self.shutdown_signal = Shutdown()
        self.audit: Audit = no_audit if settings.audit_log is None else audit_file(settings.audit_log)
        self.templates = {own.prefix: templates_of(own, self.clusters) for own in self.clusters}
        """Keys are the prefixes of addresses; ``""`` stands for pages of no cluster, if there are several."""
        if len(self.clusters) > 1:
            self.templates[""] = templates_of(settings, self.clusters)
        by_cluster = {own.cluster: self.templates[own.prefix] for own in self.clusters if own.prefix}
        self.refusals = Refusals(self.templates[""], self.audit, by_cluster=by_cluster)
        self._lock = threading.Lock()
        self._audits: AuditReports | None = None

    def audits(self) -> AuditReports:
        with self._lock:
            if self._audits is None:
                from oncelog.console.audits.report_store import AuditReports

                settings = self.settings
                self._audits = AuditReports(settings.audit_reports, settings.audit_data, audit=self.audit)
            return self._audits

    def close(self) -> None:
        if self._audits is not None:
            self._audits.close()
        self.decoding.close()


def templates_of(settings: Settings, clusters: Sequence[Settings]) -> Environment:
    """The templates of one cluster, or of pages of none."""
    of_none = len(clusters) > 1 and not settings.prefix
    return environment(
        settings.prefix,
        pages=[] if of_none else [page for page in PAGES if page.path.count("/") == 1],
        allow_changes=settings.allow_changes,
        bootstrap=settings.bootstrap,
        command_options=settings.command_options,
        cluster=settings.cluster,
        clusters=[own.cluster for own in clusters if own.prefix],
    )


class Services:
    """Services of one cluster."""

    def __init__(self, settings: Settings, connect: Callable[[], Client] | None, shared: Shared) -> None:
        config = CLIENT_SETTINGS | dict(settings.client)
        self.settings = settings
        self.cluster = ClusterAccess(
            connect or (lambda: Client(settings.bootstrap, config=config)), settings.workers, settings.patience_s
        )
        self.templates: Environment = shared.templates[settings.prefix]
        self.recent = Recent()
        self.rates = Rates()
        self.pictures = LastPictures()
        self.diagnoses = Diagnoses(self.cluster.new_client, settings.command_options)
        self.sampler: Sampler | None = None
        if settings.sample_every_s:
            self.sampler = Sampler(self.cluster.new_client, _checked(settings.metrics_urls), settings.sample_every_s)
        self.decoding = shared.decoding
        self.registry: RegistrySchemas | None = None
        if settings.registry is not None:
            from oncelog.console.formats.registry_schemas import RegistrySchemas

            self.registry = RegistrySchemas(settings.registry)
        self.shutdown_signal = shared.shutdown_signal
        self.streams = Streams(self.cluster, self.templates, self.page_request_of, self.shutdown_signal)
        self.audit = of_cluster(shared.audit, settings.cluster)
        self.audits = shared.audits
        self.refusals = shared.refusals

    @cached_property
    def downloads(self) -> Downloads:
        from oncelog.console.downloads.routes import Downloads

        return Downloads(self.cluster, self.shutdown_signal)

    def close(self) -> None:
        if self.sampler is not None:
            self.sampler.close()
        self.streams.close()
        if "downloads" in self.__dict__:
            self.downloads.close()
        self.diagnoses.close()
        if self.registry is not None:
            self.registry.close()
        self.cluster.close()

    def page_request_of(self, request: Request) -> PageRequest:
        as_json = request.url.path.endswith(".json")
        query = Query(request.query_params)
        return PageRequest(
            *(query, self.settings, as_json, self.recent, self.decoding, self.audits, self.sampler, self.rates),
            diagnoses=self.diagnoses,
            registry=self.registry,
        )


def _checked(urls: Sequence[str]) -> list[str]:
    """Validate addresses of metrics ports. Raises ConfigError."""
    if not urls:
        return []
    from oncelog.console.metrics.broker_ports import checked_address

    return [checked_address(url) for url in urls]
