"""Rights are taken away and given back while transactions run, with and without other trouble: who is refused aborts or
is aborted, nobody reads half of a transaction, nothing acknowledged is lost, and readers are not left waiting.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from oncelog.base.acls import Operation, PatternType, Permission, ResourceType
from oncelog.testing.simulation import ClientHost, Simulation
from oncelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from oncelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.simulation.testing.numbered_pairs import LEFT, NOT_AUTHORIZED, RIGHT, Ledger, Writer, check, read_all

CONFIG: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
EVERYBODY: Final = "User:ANONYMOUS"
TAKEN: Final = (
    (ResourceType.TOPIC, RIGHT, Operation.WRITE),
    (ResourceType.TOPIC, LEFT, Operation.DESCRIBE),
    (ResourceType.TRANSACTIONAL_ID, "writer-1", Operation.WRITE),
    (ResourceType.TRANSACTIONAL_ID, "writer-2", Operation.DESCRIBE),
)


async def administrate(host: ClientHost) -> None:
    """Take a right away, and give it back after a while."""
    number = 0
    async with host.client() as client:
        for kind, name, _ in TAKEN:  # whoever is named by any entry needs one that allows
            await client.request(CreateAclsRequest(creations=[_entry(kind, name, Operation.ALL, Permission.ALLOW)]))
        while not host.stopping:
            kind, name, operation = TAKEN[number % len(TAKEN)]
            number += 1
            await client.request(CreateAclsRequest(creations=[_entry(kind, name, operation, Permission.DENY)]))
            await asyncio.sleep(0.4)
            await client.request(DeleteAclsRequest(filters=[_every_denial()]))
            await asyncio.sleep(0.4)
        await client.request(DeleteAclsRequest(filters=[_every_denial()]))


def _entry(kind: ResourceType, name: str, operation: Operation, permission: Permission) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=EVERYBODY,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def _every_denial() -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        pattern_type_filter=PatternType.ANY,
        operation=Operation.ANY,
        permission_type=Permission.DENY,
    )


async def open_topics(host: ClientHost) -> None:
    async with host.client() as client:
        await client.metadata([LEFT, RIGHT], create=True)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "faults"), [(1, ()), (3, ("kill", "kill-client", "reset", "cut-down"))], ids=str)
def test_rights_come_and_go(seed: int, faults: tuple[str, ...]) -> None:
    ledger = Ledger()
    with Simulation(seed, CONFIG) as simulation:
        simulation.run(open_topics)
        for name in ("writer-1", "writer-2"):
            simulation.supervise(name, Writer(name, ledger))
        simulation.supervise("administrator", administrate)
        if faults:
            simulation.trouble(30, *faults)
        else:
            simulation.wait(30)
        simulation.settle()
        simulation.wait(30)  # what a writer could not abort itself has timed out
        left, right = (simulation.run(lambda host, topic=topic: read_all(host, topic)) for topic in (LEFT, RIGHT))
    check(ledger, left, right)
    assert set(ledger.refusals) == NOT_AUTHORIZED, ledger.refusals
