"""kazoo as the coordination tree uses it: its client with TLS and logins, the ACLs of nodes, and its log."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from oncelog.coordination.zookeeper.access import Login, ZooKeeperAccess

_RECONNECT: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
_REMEMBERED: Final = 100


def make_client(hosts: str, access: ZooKeeperAccess, session_timeout_s: float) -> KazooClient:
    """An unstarted kazoo client. Raises ModuleNotFoundError if SASL needs a missing package."""
    options: dict[str, Any] = {}
    if access.tls is not None:
        options |= {"handler": TlsHandler(access.tls), "use_ssl": True}
    if access.sasl is not None:
        import puresasl  # noqa: F401  # without it kazoo would retry forever

        user, password = access.sasl
        options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    if access.digest is not None:
        options["auth_data"] = [("digest", _credential(access.digest))]
    return KazooClient(hosts, timeout=session_timeout_s, connection_retry=dict(_RECONNECT), logger=_logger(), **options)


def acl_of(access: ZooKeeperAccess, path: str) -> list[ACL]:
    """The ACL for a new node; ``path`` is without the chroot."""
    if access.shares(path):
        return list(OPEN_ACL_UNSAFE)
    return [*CREATOR_ALL_ACL, *(() if access.hides(path) else READ_ACL_UNSAFE)]


def failure_of(client: KazooClient) -> str:
    """Why the last TLS connection failed; empty if unknown."""
    return str(getattr(client.handler, "failure", ""))


def _credential(login: Login) -> str:
    return f"{login.user}:{login.password}"


# kazoo's own TLS connections also trust the system's certificates, read files by name for each connection, and hide why
# a handshake failed.
class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """A kazoo handler with TLS connections; the context decides whether the host name is verified."""

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        super().__init__()
        self._context = context
        self.failure = ""
        """Why the last connection attempt failed."""

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float | None = None, **_of_kazoos_own: object
    ) -> ssl.SSLSocket:
        """Connect and do the handshake. Raises OSError, which includes ssl.SSLError."""
        try:
            plain = socket.create_connection(address, timeout)
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return self._context().wrap_socket(plain, server_hostname=hostname)
            except BaseException:
                # A failed handshake must not leak the socket.
                plain.close()
                raise
        except OSError as error:
            self.failure = _reason(error)
            raise

    def select(self, reads: Sequence[Any], writes: Sequence[Any], errors: Sequence[Any], timeout: float) -> Any:
        """Wait like ``select.select``; a connection with decrypted but unread data is ready at once."""
        ready = [read for read in reads if isinstance(read, ssl.SSLSocket) and read.pending()]
        if ready:
            others = [read for read in reads if read not in ready]
            selected = super().select(others, writes, errors, 0) if others else ([], [], [])
            return [*ready, *selected[0]], selected[1], selected[2]
        return super().select(reads, writes, errors, timeout)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is rejected: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "it accepts connections but does not answer the TLS handshake"
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake failed: {(error.reason or str(error)).lower().replace('_', ' ')}"
    return f"no TLS connection: {error.strerror or error}"


def _logger() -> logging.Logger:
    """A logger for kazoo, which repeats itself with every attempt to connect."""
    logger = logging.getLogger("oncelog.zookeeper")
    if not logger.filters:
        logger.addFilter(_WithoutRequests())
        logger.addFilter(_Repeats())
    return logger


class _WithoutRequests(logging.Filter):
    """Drops records below INFO: they contain requests, including the password of a login."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.INFO


class _Repeats(logging.Filter):
    """Drops messages repeated since the last successful connection."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if "established" in message or len(self._seen) > _REMEMBERED:
            self._seen.clear()
        elif message in self._seen:
            return False
        self._seen.add(message)
        return True
