"""The TLS of a listener whose keys and files change while it is open."""

from __future__ import annotations

import ssl

from oncelog.base.security import SecurityProtocol
from oncelog.core.configs.broker import BrokerConfig
from oncelog.node.listeners.tls import TlsSettings, tls_settings
from oncelog.runtime.tls.credentials import Credentials
from tests.certificates import Authority

LISTENER = "OUTSIDE"


def of(config: dict[str, str]) -> TlsSettings:
    """The settings of a listener."""
    return tls_settings(BrokerConfig(config), LISTENER, SecurityProtocol.SSL)


def test_an_open_listener_takes_another_certificate_and_goes_on_asking_clients_for_theirs() -> None:
    authority = Authority()
    now = authority.listener(ssl_client_auth="required", ssl_enabled_protocols="TLSv1.3")
    credentials = Credentials(LISTENER, lambda: of(now))
    first = credentials.contexts
    now |= {"ssl.client.auth": "none", "ssl.enabled.protocols": "TLSv1.2", "ssl.principal.mapping.rules": "RULE:.*/x/"}
    assert not credentials.reload()
    assert credentials.contexts is first
    now |= authority.listener(authority.broker("elsewhere"), ssl_client_auth="none")
    assert credentials.reload()
    assert credentials.contexts is not first
    assert credentials.contexts.server.verify_mode is ssl.CERT_REQUIRED
    assert credentials.contexts.server.minimum_version is ssl.TLSVersion.TLSv1_3


def test_all_keys_that_are_set_in_the_metadata_count_at_the_start() -> None:
    authority = Authority()
    now = authority.listener(ssl_client_auth="none")
    credentials = Credentials(LISTENER, lambda: of(now))
    now["ssl.client.auth"] = "required"
    assert credentials.reload(at_start=True)
    assert credentials.contexts.server.verify_mode is ssl.CERT_REQUIRED
