"""Security of an in-process broker or cluster: certificates, users, and access control lists.

Certificates and an issuer of tokens are ready when the brokers start. A super user's requests create users and access
control lists; all brokers know them when a method returns. A reset removes them, like topics.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from oncelog.admin.scram_users import MECHANISMS, delete_credentials, set_password
from oncelog.client.blocking.client import Client
from oncelog.runtime.server import Server
from oncelog.security.setup import replace
from oncelog.testing.security.administration import acl_creations, create_acls
from oncelog.testing.security.certificates import Certificates
from oncelog.testing.security.client_config import User, java_config, librdkafka_config
from oncelog.testing.security.issuer import TokenIssuer
from oncelog.testing.security.kinds import Kind, broker_config

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LIFETIME_S: Final = 3600.0


class SecuredHost(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def link_servers(self) -> str: ...

    def on_loops(self, work: Callable[[Server], None]) -> None: ...

    def settle(self) -> None: ...


class Security:
    """Certificates, users and access control lists: ``broker.security`` and ``cluster.security``."""

    def __init__(self, kind: Kind, host: SecuredHost, now_s: Callable[[], float]) -> None:
        self.kind = kind
        self._host = host
        self._now_s = now_s
        self._directory: Path | None = None
        self._certificates: Certificates | None = None
        self._issuer: TokenIssuer | None = None
        self._users: dict[str, User] = {}
        self.passwords: dict[str, str] = {}
        """Passwords of PLAIN; brokers read them at each login."""

    def add_user(self, name: str, password: str | None = None) -> None:
        """Create a user without permissions, see :meth:`allow`, or change a password (default: the name with
        ``-secret``). Raises ValueError if this kind of security has no users, or no passwords."""
        self._check_name(name)
        if password is not None and self.kind not in (Kind.SCRAM, Kind.PLAIN):
            raise ValueError(f"security={self.kind.value!r}: users have no passwords; leave out the password")
        secret = password or f"{name}-secret"
        if self.kind is Kind.MTLS:
            self._users[name] = User(name, identity=self._files.client(name))
        elif self.kind is Kind.OAUTH:
            self._users[name] = User(name, token_file=self._token_file(name))
        else:
            self._users[name] = User(name, secret)
            if self.kind is Kind.PLAIN:
                self.passwords[name] = secret
            else:
                self._administrate(lambda client: set_password(client, name, secret))

    def revoke(self, user: str) -> None:
        """Remove a user and close its connections. A password is invalid from now on; a certificate or token is still
        accepted, but without permissions."""
        self._user(user)
        del self._users[user]
        if self.kind is Kind.SCRAM:
            self._administrate(lambda client: delete_credentials(client, user, tuple(MECHANISMS)))
        elif self.kind is Kind.PLAIN:
            del self.passwords[user]
        else:
            self.deny(user)
        self._host.on_loops(lambda server: _disconnect(server, f"User:{user}"))

    def allow(
        self,
        user: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        prefixed: bool = False,
        host: str = "*",
    ) -> None:
        """Allow operations: ``allow("alice", "read", topic="clicks", group="*")``; by default all, on all resources.
        ``prefixed``: those whose name starts like this."""
        resources = {"topic": topic, "group": group, "transactional_id": transactional_id}
        self._add_acls(user, operations, resources, cluster, prefixed, host, allowed=True)

    def deny(
        self,
        user: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        cluster: bool = False,
        prefixed: bool = False,
        host: str = "*",
    ) -> None:
        """Deny operations, even if others allow them; see :meth:`allow`."""
        resources = {"topic": topic, "group": group, "transactional_id": transactional_id}
        self._add_acls(user, operations, resources, cluster, prefixed, host, allowed=False)

    def _add_acls(
        self,
        user: str,
        operations: tuple[str, ...],
        resources: dict[str, str | None],
        cluster: bool,
        prefixed: bool,
        host: str,
        *,
        allowed: bool,
    ) -> None:
        if cluster:
            resources["cluster"] = "yes"
        entries = acl_creations(user, operations, resources, allowed=allowed, prefixed=prefixed, host=host)
        self._check_users()
        self._administrate(lambda client: create_acls(client, entries))

    def client_config(self, user: str | None = None, *, java: bool = False) -> dict[str, Any]:
        """A client's settings to log in as ``user`` (none with ``security="tls"``), in librdkafka's or Java's names."""
        known_user = None if user is None else self._user(user)
        servers, ca = self._host.bootstrap_servers, self._files.ca
        if java:
            return java_config(self.kind, servers, ca, known_user)
        return librdkafka_config(self.kind, servers, ca, known_user, lambda: self._fresh_token(user or ""))

    @property
    def ca_file(self) -> Path:
        """The authority's certificate for clients to trust, in PEM."""
        return self._files.ca

    def expire_certificate(self) -> None:
        """Give the client listener an expired certificate: new connections of clients fail, until :meth:`rotate`."""
        self._files.expire()
        self._host.on_loops(Server.reload_certificates)

    def rotate(self) -> None:
        """Give the client listener a new key and certificate of the same authority; open connections stay."""
        self._files.renew()
        self._host.on_loops(Server.reload_certificates)

    def token(self, user: str, expires_in: float = _LIFETIME_S, **claims: object) -> str:
        """A signed token of any user, for ``expires_in`` seconds (negative: expired). ``claims`` are added, or replace
        defaults: ``aud="other"``. Raises ValueError without ``security="oauth"``."""
        if self._issuer is None:
            raise ValueError("tokens need security='oauth' and a broker that has been started")
        return self._issuer.token(user, expires_in, **claims)

    def config(self) -> dict[str, str]:
        """The brokers' configuration. The first call creates the files."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="oncelog-security-"))
            self._certificates = Certificates(self._directory)
            if self.kind is Kind.OAUTH:
                self._issuer = TokenIssuer(self._now_s)
                self._issuer.write_key_set(self._directory / "keys.json")
        return broker_config(self.kind, self._directory, self._directory / "keys.json")

    def link_config(self) -> dict[str, Any]:
        """A super user's client settings for the broker listener."""
        stores = self._files
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(stores.ca),
            "ssl.certificate.location": str(stores.brokers),
        }

    def forget(self) -> None:
        # After a reset: remove all users, and renew the certificate.
        self._users.clear()
        self.passwords.clear()
        if self._certificates is not None:
            self._certificates.renew()

    def close(self) -> None:
        self._users.clear()
        self.passwords.clear()
        self._certificates = self._issuer = None
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    @property
    def _files(self) -> Certificates:
        if self._certificates is None:
            raise RuntimeError("the broker has not been started: call start(), or use it in a with block")
        return self._certificates

    def _user(self, name: str) -> User:
        self._check_users()
        user = self._users.get(name)
        if user is None:
            raise ValueError(f"no user {name!r}: create it with add_user()")
        return user

    def _check_users(self) -> None:
        if not self.kind.has_users:
            raise ValueError(f"security={self.kind.value!r} has no users: use 'mtls', 'scram', 'plain' or 'oauth'")

    def _check_name(self, name: str) -> None:
        self._check_users()
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} cannot be a user's name: use 1 to 64 letters, digits, '.', '_' or '-'")

    def _administrate(self, work: Callable[[Client], object]) -> None:
        with Client(self._host.link_servers, config=self.link_config()) as client:
            work(client)
        self._host.settle()

    def _token_file(self, name: str) -> Path:
        assert self._directory is not None
        path = self._directory / f"{name}.jwt"
        replace(path, self.token(name))
        return path

    def _fresh_token(self, user: str) -> tuple[str, float]:
        return self.token(user), self._now_s() + _LIFETIME_S


def _disconnect(server: Server, principal: str) -> None:
    for connection_id in server.node.connections.of_principal(principal):
        connection = server.effect_runner.connections.get(connection_id)
        if connection is not None:
            connection.abort()
