"""The log of denied requests and of changed access control lists, one line each, in Apache Kafka's words.

Every denial is counted, but a client cannot flood the log: each requester (principal and host) gets ``IN_FULL`` lines
per interval, then a summary line gives the number of further denials. Requesters beyond ``REQUESTERS`` share one entry.
Allowed operations are logged only at debug level (``logs_allowed``). All but printable ASCII is escaped, so that no
peer's name can forge a line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from oncelog.base.acls import Operation, ResourceType, kafka_word
from oncelog.base.text import shortened
from oncelog.core.acls.texts import NAME_LENGTH, rule_text, shown
from oncelog.core.controller.entities.acl_changes import acl_count as acl_count
from oncelog.handlers.registry import BY_KEY
from oncelog.node.kernel.events import AccessLogged

if TYPE_CHECKING:
    from oncelog.core.acls.authorizer import Ruling
    from oncelog.handlers.broker.context import Context
    from oncelog.node.kernel.deadlines import Deadlines
    from oncelog.node.kernel.events import Outbox

INTERVAL_MS: Final = 600_000
IN_FULL: Final = 20
REQUESTERS: Final = 100

FindRuling = Callable[[str, str, Operation, ResourceType, str], "Ruling"]
_Requester = tuple[str, str]
_OTHERS: Final = ("others", "others")


@dataclass(slots=True)
class _Denials:
    logged: int = 0
    suppressed: int = 0


class DecisionLog:
    """Writes denials and changes of access control lists; implements ``handlers.broker.context.AccessLog``."""

    def __init__(self, ruling: FindRuling, outbox: Outbox, deadlines: Deadlines) -> None:
        self._ruling = ruling
        self._outbox = outbox
        self._deadlines = deadlines
        self._denials: dict[_Requester, _Denials] = {}
        self.logs_allowed = False
        """True: allowed operations are logged too, at debug level."""
        self.denied: Counter[tuple[Operation, ResourceType]] = Counter()
        """Denials since the start."""
        self.changes: Counter[str] = Counter()
        """Changed entries since the start, by verb."""

    def decided(
        self, context: Context, operation: Operation, resource: ResourceType, name: str, count: int, *, allowed: bool
    ) -> None:
        """Count a denial; log it, unless its requester has used up its lines of this interval."""
        if allowed:
            if self.logs_allowed:
                self._write("debug", self._line(context, operation, resource, name, count))
            return
        self.denied[operation, resource] += 1
        if self._is_written((shortened(context.principal, NAME_LENGTH), context.client_host)):
            self._write("info", self._line(context, operation, resource, name, count))

    def changed(self, context: Context, verb: str, entry: str) -> None:
        """Log a changed entry. There is no limit: only allowed requests make changes."""
        self.changes[verb] += 1
        principal, host = shown(context.principal), context.client_host.removeprefix("/")
        self._write("info", f"{verb} ACL {shown(entry)} by principal = {principal} from host = {host}")

    def _is_written(self, requester: _Requester) -> bool:
        if not self._denials:
            self._deadlines.at(self._deadlines.now_ms + INTERVAL_MS, self._interval_over)
        if requester not in self._denials and len(self._denials) >= REQUESTERS:
            # A client can make up principals; the table must not grow with them.
            requester = _OTHERS
        seen = self._denials.setdefault(requester, _Denials())
        if seen.logged < IN_FULL:
            seen.logged += 1
            return True
        seen.suppressed += 1
        return False

    def _interval_over(self, _now_ms: int) -> None:
        for (principal, host), seen in self._denials.items():
            if seen.suppressed:
                source = shown(host.removeprefix("/"))
                summary = f"{seen.suppressed} more operations in {INTERVAL_MS // 60_000} minutes"
                self._write("info", f"Principal = {shown(principal)} is Denied {summary} from host = {source}")
        self._denials.clear()

    def _write(self, level: str, line: str) -> None:
        self._outbox.effects.append(AccessLogged(level, line))

    def _line(self, context: Context, operation: Operation, resource: ResourceType, name: str, count: int) -> str:
        ruling = self._ruling(context.principal, context.client_host, operation, resource, name)
        return (
            f"Principal = {shown(context.principal)} is {'Allowed' if ruling.allowed else 'Denied'} operation = "
            f"{operation.name} from host = {context.client_host.removeprefix('/')} on resource = "
            f"{kafka_word(resource)}:LITERAL:{shown(name)} for request = {BY_KEY[context.api_key].name} "
            f"with resourceRefCount = {count} based on rule {rule_text(ruling)}"
        )
