"""A connection to ZooKeeper through kazoo, without knowledge of the coordination tree.

The rule: every call returns. It fails at once without a connection, and without an answer within the session time-out.
kazoo replaces an expired session by itself; ``lost`` records the expiry, and all later calls fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final, NamedTuple

from kazoo import exceptions
from kazoo.client import KazooState
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KeeperState

from oncelog.base.tree import OutcomeUnknown, SessionLost, TreeUnavailable
from oncelog.coordination.zookeeper.access import ZooKeeperAccess
from oncelog.coordination.zookeeper.connection import acl_of, failure_of, make_client
from oncelog.ports import Check, Create, Delete, Operation, Set

_PIPELINED: Final = 500
"""Reads in flight at a time."""
_NO_ANSWER: Final = (exceptions.ConnectionLoss, exceptions.ConnectionClosedError, KazooTimeoutError)
_FORBIDDEN: Final = (exceptions.NoAuthError, exceptions.AuthFailedError, exceptions.InvalidACLError)

Watch = Callable[[object], None]
"""Called once with a kazoo event, in kazoo's thread; also when the connection is lost. Pass the same function each time
when waiting for the same thing repeatedly: different ones accumulate until it happens.
"""


class Stat(NamedTuple):
    version: int
    owner: int
    """The session of an ephemeral node; 0 for a persistent one."""
    children: int


@dataclass(frozen=True, slots=True)
class CreateNext:
    """Create a sequential node: its name is ``prefix`` and the number of nodes ever created beside it."""

    prefix: str
    value: bytes


class Reason(Enum):
    VERSION = "it has another version"
    EXISTS = "it exists"
    ABSENT = "it does not exist"
    OTHER = "it has children, or its parent is ephemeral"


class Refused(Exception):
    """A transaction was rejected, without a change, because of the operation at ``index``."""

    def __init__(self, index: int, reason: Reason) -> None:
        self.index = index
        self.reason = reason
        super().__init__(f"operation {index}: {reason.value}")


@dataclass(frozen=True, slots=True)
class Address:
    """``zookeeper.connect``: the servers and the chroot."""

    hosts: str
    chroot: str
    """Empty, or a path without a trailing slash."""

    @classmethod
    def parse(cls, connect: str) -> Address:
        """Parse ``host:port,host:port/path`` with an optional path."""
        hosts, slash, path = connect.partition("/")
        return cls(hosts, (slash + path).rstrip("/"))


class ZooKeeperClient:
    def __init__(
        self,
        address: Address,
        access: ZooKeeperAccess,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        changed: Callable[[], None],
    ) -> None:
        """Connect. ``changed`` is called, from any thread, when the connection is restored or the session has ended.
        Raises TreeUnavailable.
        """
        self.lost = False
        """True once the session has ended."""
        self._hosts, self._chroot = address.hosts, address.chroot
        self._access = access
        self._timeout_s = session_timeout_ms / 1000
        self._changed = changed
        self._login_refused = False
        self._client = _make_client(address, access, self._timeout_s)
        self._client.add_listener(self._state_changed)
        try:
            self._client.start(connection_timeout_ms / 1000)
            # kazoo reports "connected" before the login is complete; this call returns after it.
            self._client.exists_async("/").get(timeout=self._timeout_s)
        except (KazooTimeoutError, exceptions.KazooException) as error:
            reason = self._connect_failure(error, connection_timeout_ms)
            self.stop()
            raise TreeUnavailable(reason) from None
        self.session_id: int = self._client.client_id[0]

    def _connect_failure(self, error: Exception, waited_ms: int) -> str:
        """Explain to an operator why there is no session."""
        servers = f"ZooKeeper at {self._hosts}"
        if self._login_refused:
            return f"{servers} rejects the user or the password of oncelog.zookeeper.sasl.jaas.config"
        reason = failure_of(self._client) or str(error) or type(error).__name__
        return f"cannot reach {servers} within {waited_ms / 1000:g} s: {reason}"

    @property
    def connected(self) -> bool:
        return bool(self._client.connected)

    def stop(self) -> None:
        """End the session, if ZooKeeper is reachable, and the connection."""
        self._client.remove_listener(self._state_changed)
        with suppress(Exception):  # the connection may be broken in any way
            self._client.stop()
        with suppress(Exception):
            self._client.close()

    def sync(self) -> None:
        """Make later reads see all earlier commits. Raises TreeUnavailable and SessionLost, as all reads do."""
        self._call(self._client.sync_async, "/")

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat] | None:
        """A node's value and metadata, or None; ``watch`` is called once when the node changes or is deleted."""
        answer = self._call(self._client.get_async, path, watch)
        return None if answer is None else (answer[0], _stat(answer[1]))

    def get_all(self, paths: Iterable[str]) -> Iterator[tuple[str, tuple[bytes, Stat] | None]]:
        """Values are read in parallel."""
        for path, answer in self._side_by_side(paths, self._client.get_async):
            yield path, None if answer is None else (answer[0], _stat(answer[1]))

    def children_of(self, paths: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
        """The names of nodes' children, unordered, read in parallel."""
        for path, names in self._side_by_side(paths, self._client.get_children_async):
            yield path, names or []

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Names of a node's children, unordered; ``watch`` is called once when they change."""
        return self._call(self._client.get_children_async, path, watch) or []

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The metadata of a node, or None; ``watch`` is called once when it is created, changed or deleted."""
        stat = self._call(self._client.exists_async, path, watch)
        return None if stat is None else _stat(stat)

    def ensure(self, paths: Sequence[str]) -> None:
        """Create missing persistent nodes, parents first, after those of the chroot."""
        self._require_connection()
        parts = self._chroot.split("/")
        above = ["/".join(parts[: length + 1]) for length in range(1, len(parts))]
        for path in (*above, *map(self._real, paths)):
            if self._result_of(self._client.exists_async(path)) is None:
                acl = acl_of(self._access, path.removeprefix(self._chroot))
                with suppress(exceptions.NodeExistsError):  # another broker has created it
                    self._result_of(self._client.create_async(path, b"", acl))

    def set_acls(self, paths: Sequence[str]) -> int:
        """Set the ACLs of nodes to those they would be created with now. Returns the number of existing nodes."""
        paths_by_real = {self._real(path): path for path in paths}
        answers = self._side_by_side(
            paths, lambda real: self._client.set_acls_async(real, acl_of(self._access, paths_by_real[real]))
        )
        return sum(answer is not None for _, answer in answers)

    def transact(self, operations: Sequence[Operation | CreateNext]) -> str:
        """Execute all operations or none. Returns the path of the last one if it creates a node. Raises Refused,
        TreeUnavailable, OutcomeUnknown, SessionLost.
        """
        self._require_connection()
        transaction = self._client.transaction()
        for operation in operations:
            self._add(transaction, operation)
        try:
            results = transaction.commit_async().get(timeout=self._timeout_s)
        except exceptions.SessionExpiredError as error:
            raise SessionLost("ZooKeeper has ended the session") from error
        except _NO_ANSWER as error:
            raise OutcomeUnknown(f"the connection to ZooKeeper was lost in a commit: {error!r}") from error
        for index, result in enumerate(results):
            if isinstance(result, _FORBIDDEN):
                raise TreeUnavailable(_forbidden(result))
            # Operations before the failed one report only that they were rolled back.
            if isinstance(result, Exception) and not isinstance(result, exceptions.RolledBackError):
                raise Refused(index, _reason(result))
        return results[-1] if isinstance(results[-1], str) else ""

    def _add(self, transaction: Any, operation: Operation | CreateNext) -> None:
        match operation:
            case Create(path, value, ephemeral):
                transaction.create(self._real(path), bytes(value), acl_of(self._access, path), ephemeral=ephemeral)
            case CreateNext(prefix, value):
                transaction.create(self._real(prefix), value, acl_of(self._access, prefix), sequence=True)
            case Set(path, value, version):
                transaction.set_data(self._real(path), bytes(value), version)
            case Delete(path, version):
                transaction.delete(self._real(path), version)
            case Check(path, version):
                transaction.check(self._real(path), version)

    def _real(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _side_by_side(self, paths: Iterable[str], call: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
        left = iter(paths)
        while part := list(islice(left, _PIPELINED)):
            self._require_connection()
            for path, pending in [(path, call(self._real(path))) for path in part]:
                yield path, self._result_of(pending)

    def _require_connection(self) -> None:
        # Checked before each call of kazoo: it queues requests that it cannot send, and after some hundred of them the
        # next call would block.
        if self.lost:
            raise SessionLost("ZooKeeper has ended the session")
        if not self.connected:
            raise TreeUnavailable("not connected to ZooKeeper")

    def _call(self, call: Callable[..., Any], path: str, *more: object) -> Any:
        """Call kazoo for a node. Returns the result, None if the node does not exist."""
        self._require_connection()
        return self._result_of(call(self._real(path), *more))

    def _result_of(self, pending: Any) -> Any:
        """The result of a pending call, None if the node does not exist."""
        self._require_connection()
        try:
            return pending.get(timeout=self._timeout_s)
        except exceptions.NoNodeError:
            return None
        except exceptions.SessionExpiredError as error:
            raise SessionLost("ZooKeeper has ended the session") from error
        except _FORBIDDEN as error:
            raise TreeUnavailable(_forbidden(error)) from None
        except _NO_ANSWER as error:
            raise TreeUnavailable(f"ZooKeeper does not answer: {error!r}") from error

    def _state_changed(self, state: str) -> None:
        """Runs in kazoo's thread, which must not block."""
        if state == KazooState.LOST:
            # kazoo reports a refused login only by its client state.
            self._login_refused = self._client.client_state == KeeperState.AUTH_FAILED
            self.lost = True
        if state != KazooState.SUSPENDED:
            self._changed()


def _make_client(address: Address, access: ZooKeeperAccess, timeout_s: float) -> Any:
    try:
        return make_client(address.hosts, access, timeout_s)
    except ModuleNotFoundError as error:
        raise TreeUnavailable(
            f"a ZooKeeper login needs {error.name}, which is not installed: pip install 'oncelog[cluster]'"
        ) from None


def _forbidden(error: Exception) -> str:
    if isinstance(error, exceptions.InvalidACLError):
        return (
            "ZooKeeper has no identity of this broker to put into a node's ACL: zookeeper.set.acl=true needs a login, "
            "or a certificate that the server requests"
        )
    if isinstance(error, exceptions.AuthFailedError):
        return "ZooKeeper rejects the login"
    return (
        "ZooKeeper does not let this broker read or change the tree: its nodes have other owners; use the certificate "
        "or the login that they were created with, or change their ACLs"
    )


def _stat(stat: Any) -> Stat:
    return Stat(stat.version, stat.ephemeralOwner, stat.numChildren)


def _reason(error: Exception) -> Reason:
    if isinstance(error, exceptions.BadVersionError):
        return Reason.VERSION
    if isinstance(error, exceptions.NodeExistsError):
        return Reason.EXISTS
    return Reason.ABSENT if isinstance(error, exceptions.NoNodeError) else Reason.OTHER
