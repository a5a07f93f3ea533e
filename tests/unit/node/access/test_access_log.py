"""The log of denials: Apache Kafka's line, bounded for each requester, no line of a peer's making."""

from __future__ import annotations

from oncelog.base.acls import AclBinding, AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from oncelog.core.acls.authorizer import Reason, Ruling
from oncelog.node.access.access_log import IN_FULL, INTERVAL_MS, REQUESTERS, DecisionLog
from oncelog.node.kernel.deadlines import Deadlines
from oncelog.node.kernel.events import AccessLogged, Outbox
from tests.unit.handlers.log_broker import LogBroker, context_of

DENIED = Ruling(allowed=False, reason=Reason.DEFAULT_DENY)
ENTRY = AclBinding(
    ResourcePattern(ResourceType.TOPIC, PatternType.PREFIXED, "s"),
    AclEntry("User:*", "*", Operation.READ, Permission.DENY),
)


class Bench:
    """A log over a ruling that the test sets."""

    def __init__(self) -> None:
        self.ruling = DENIED
        self.outbox, self.deadlines = Outbox(), Deadlines()
        self.deadlines.now_ms = 1_000
        self.effects = self.outbox.begin()
        self.log = DecisionLog(lambda *_question: self.ruling, self.outbox, self.deadlines)
        self.context = context_of(LogBroker(), 1, 12)

    def ask(self, name: str = "secret", principal: str = "User:bob", *, allowed: bool = False, times: int = 1) -> None:
        self.context.principal, self.context.client_host = principal, "/10.0.0.1"
        for _ in range(times):
            self.log.decided(self.context, Operation.READ, ResourceType.TOPIC, name, 2, allowed=allowed)

    def lines(self) -> list[str]:
        return [effect.line for effect in self.effects if isinstance(effect, AccessLogged)]


def test_a_denial_is_apache_kafkas_line() -> None:
    bench = Bench()
    bench.ask()
    bench.ruling = Ruling(allowed=False, reason=Reason.ACL, acl=ENTRY)
    bench.ask()
    assert bench.lines() == [
        "Principal = User:bob is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:secret "
        "for request = Fetch with resourceRefCount = 2 based on rule DefaultDeny",
        "Principal = User:bob is Denied operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:secret "
        "for request = Fetch with resourceRefCount = 2 based on rule MatchingAcl(acl=StandardAcl(resourceType=TOPIC, "
        "resourceName=s, patternType=PREFIXED, principal=User:*, host=*, operation=READ, permissionType=DENY))",
    ]


def test_who_knocks_a_hundred_thousand_times_is_counted() -> None:
    bench = Bench()
    bench.ask(times=100_000)
    bench.ask(principal="User:eve")
    assert len(bench.lines()) == IN_FULL + 1
    assert bench.log.denied[Operation.READ, ResourceType.TOPIC] == 100_001
    bench.deadlines.run_due(1_000 + INTERVAL_MS)
    assert bench.lines()[-1] == (
        f"Principal = User:bob is Denied {100_000 - IN_FULL} more operations in 10 minutes from host = 10.0.0.1"
    )
    bench.ask()
    assert bench.lines()[-1].startswith("Principal = User:bob is Denied operation")


def test_many_names_are_one_requester() -> None:
    bench = Bench()
    for number in range(10 * REQUESTERS):
        bench.ask(principal=f"User:{number}")
    assert len(bench.lines()) == REQUESTERS + IN_FULL
    bench.deadlines.run_due(1_000 + INTERVAL_MS)
    assert bench.lines()[-1].startswith(f"Principal = others is Denied {9 * REQUESTERS - IN_FULL} more")


def test_no_name_forges_a_line() -> None:
    bench = Bench()
    bench.ask(name="x\nPrincipal = User:admin is Allowed", principal="User:é\r")
    bench.ask(name="n" * 40_000)
    first, second = bench.lines()
    assert "\n" not in first
    assert "\r" not in first
    assert first.isascii()
    assert "x\\nPrincipal" in first
    assert len(second) < 2_000


def test_what_is_allowed_is_written_for_who_looks_for_it() -> None:
    bench = Bench()
    bench.ask(allowed=True)
    assert bench.lines() == []
    bench.ruling = Ruling(allowed=True, reason=Reason.SUPER_USER)
    bench.log.logs_allowed = True
    bench.ask(allowed=True)
    assert [effect.level for effect in bench.effects if isinstance(effect, AccessLogged)] == ["debug"]
    assert "is Allowed operation = READ" in bench.lines()[0]
    assert not bench.log.denied


def test_a_changed_entry_names_who_changed_it() -> None:
    bench = Bench()
    bench.ask(allowed=True)
    bench.log.changed(bench.context, "Created", "StandardAcl(…)")
    assert bench.lines()[0].endswith("by principal = User:bob from host = 10.0.0.1")
    assert bench.log.changes == {"Created": 1}
