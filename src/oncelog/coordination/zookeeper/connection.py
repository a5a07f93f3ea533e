"""kazoo as the coordination tree uses it: its client with TLS and logins, the ACLs of nodes, and its log.

TLS has sockets of our own: kazoo's trust the system's certificates beside those asked for, read their files by name
for each connection, and do not say why a handshake has failed. Nothing that kazoo logs of its requests is kept:
passwords and values are in it.
"""

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
    """A client of kazoo's, not started. Raises ModuleNotFoundError where what SASL needs is not installed."""
    options: dict[str, Any] = {}
    if access.tls is not None:
        options |= {"handler": TlsHandler(access.tls), "use_ssl": True}
    if access.sasl is not None:
        import puresasl  # noqa: F401  # kazoo would try again for ever without it

        user, password = access.sasl
        options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    if access.digest is not None:
        options["auth_data"] = [("digest", _credential(access.digest))]
    return KazooClient(hosts, timeout=session_timeout_s, connection_retry=dict(_RECONNECT), logger=_logger(), **options)


def acl_of(access: ZooKeeperAccess, path: str) -> list[ACL]:
    """The ACL that a node is created with; its path is without the chroot."""
    if access.shares(path):
        return list(OPEN_ACL_UNSAFE)
    return [*CREATOR_ALL_ACL, *(() if access.hides(path) else READ_ACL_UNSAFE)]


def failure_of(client: KazooClient) -> str:
    """The reason for which the last connection with TLS came to nothing; empty if none is known."""
    return str(getattr(client.handler, "failure", ""))


def _credential(login: Login) -> str:
    return f"{login.user}:{login.password}"


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """A handler of kazoo's whose connections have TLS; the host name is verified where the context says so."""

    def __init__(self, context: Callable[[], ssl.SSLContext]) -> None:
        super().__init__()
        self._context = context
        self.failure = ""
        """The reason why the last connection that was tried came to nothing."""

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float | None = None, **_of_kazoos_own: object
    ) -> ssl.SSLSocket:
        """A connection whose handshake is done. Raises OSError, as ssl.SSLError is."""
        try:
            plain = socket.create_connection(address, timeout)
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return self._context().wrap_socket(plain, server_hostname=hostname)
            except BaseException:
                plain.close()
                raise
        except OSError as error:
            self.failure = _reason(error)
            raise

    def select(self, reads: Sequence[Any], writes: Sequence[Any], errors: Sequence[Any], timeout: float) -> Any:
        """Wait as ``select.select`` does; a connection that has decrypted more than was read is ready at once."""
        ready = [read for read in reads if isinstance(read, ssl.SSLSocket) and read.pending()]
        if ready:
            others = [read for read in reads if read not in ready]
            found = super().select(others, writes, errors, 0) if others else ([], [], [])
            return [*ready, *found[0]], found[1], found[2]
        return super().select(reads, writes, errors, timeout)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "it takes connections, and does not answer the TLS handshake"
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake has failed: {(error.reason or str(error)).lower().replace('_', ' ')}"
    return f"no TLS connection: {error.strerror or error}"


def _logger() -> logging.Logger:
    """A log for kazoo, which says the same of each attempt to connect."""
    logger = logging.getLogger("oncelog.zookeeper")
    if not logger.filters:
        logger.addFilter(_WithoutRequests())
        logger.addFilter(_Repeats())
    return logger


class _WithoutRequests(logging.Filter):
    """Leaves out what is below INFO: requests with what is in them, the password of a login first of all."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.INFO


class _Repeats(logging.Filter):
    """Leaves out what was said since there was a connection last: each attempt to connect says the same again."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if "established" in message or len(self._said) > _REMEMBERED:
            self._said.clear()
        elif message in self._said:
            return False
        self._said.add(message)
        return True
