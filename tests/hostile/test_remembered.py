"""The memory that a broker keeps of names, ids and patterns which one client makes up, measured on a real server."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pytest

from oncelog.base.units import MIB
from oncelog.wire.chunks import join_chunks
from oncelog.wire.header import RequestHeader, encode_request
from oncelog.wire.message import Request, Response
from oncelog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.hostile.process import Server, Waits, read_answer
from tests.peers.clients.sweep.wire import Wire
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="memory and waits are measured as Linux tells them"),
]

MOST_REMEMBERED: Final = 40_000_000
"""Of 40 MB that may be; what a request of a megabyte becomes while it is decided is in it, too."""
WORST_WAIT: Final = 400
"""Pieces of work: some 0.2 s of an idle core."""
LONGEST_NAME: Final = 32_000
PIPELINED: Final = 20
"""Small requests that are sent before their answers are read."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        allow_everyone_if_no_acl_found="true",
        group_initial_rebalance_delay_ms="0",
        oncelog_group_members_max_bytes=str(20 * MIB),
    ) as running:
        yield running


def frame(request: Request[Response], version: int, client_id: str = "c") -> bytes:
    return join_chunks(encode_request(RequestHeader(request.API_KEY, version, 1, client_id), request))


def costs_little(server: Server, frames: Sequence[bytes]) -> None:
    """One connection asks all of it; then it is gone, and so is what it asked for, as far as Linux is given it back."""
    before = server.memory("VmRSS")
    with Waits(server) as others, server.connect() as connection:
        together = PIPELINED if len(frames[0]) < MIB // 2 else 1
        for start in range(0, len(frames), together):
            some = frames[start : start + together]
            connection.sendall(b"".join(some))
            assert all(read_answer(connection) for _ in some)
        others.ask_more(2)
        # A worker gives back what it used a moment after its answer.
        wait_until(lambda: server.memory("VmRSS") - before < MOST_REMEMBERED, "the memory back")
    assert others.worst < WORST_WAIT


def fetch(names: Iterable[str]) -> bytes:
    topics = [FetchTopic(topic=name, partitions=[FetchPartition(fetch_offset=1 << 40)]) for name in names]
    return frame(FetchRequest(max_wait_ms=0, max_bytes=1, session_epoch=0, topics=topics), 12)


@pytest.mark.parametrize(("length", "count", "requests"), [(249, 3_500, 16), (LONGEST_NAME, 30, 60)])
def test_fetch_sessions_of_topics_that_do_not_exist(server: Server, length: int, count: int, requests: int) -> None:
    """Each request opens a session, which has names of its own though they are the same."""
    costs_little(server, [fetch(f"{n}".ljust(length, "x") for n in range(count))] * requests)


def test_names_that_the_authoriser_decides_about(server: Server) -> None:
    def asked(number: int) -> bytes:
        topics = [MetadataRequestTopic(name=f"{number}-{n}".ljust(LONGEST_NAME, "x")) for n in range(30)]
        return frame(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)

    costs_little(server, [asked(number) for number in range(80)])


def test_client_ids_under_a_quota(server: Server) -> None:
    default = EntityData(entity_type="client-id", entity_name=None)
    most = OpData(key="request_percentage", value=1e6)
    entries = [EntryData(entity=[default], ops=[most])]
    with Wire(server.bootstrap_servers) as wire:
        wire.call(AlterClientQuotasRequest(entries=entries), 1)
        costs_little(server, [frame(ApiVersionsRequest(), 0, f"{n}".ljust(LONGEST_NAME)) for n in range(1600)])
        most.remove = True
        wire.call(AlterClientQuotasRequest(entries=entries), 1)


def test_members_of_groups_of_all_coordinators(server: Server) -> None:
    with Wire(server.bootstrap_servers) as wire:
        wire.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)

    def join(number: int) -> bytes:
        offered = [JoinGroupRequestProtocol(name="range", metadata=bytes(MIB - 1000))]
        request = JoinGroupRequest(
            group_id=f"g{number}",
            session_timeout_ms=1_800_000,
            rebalance_timeout_ms=1_800_000,
            protocol_type="consumer",
            protocols=offered,
        )
        return frame(request, 3)

    costs_little(server, [join(number) for number in range(80)])


@pytest.mark.parametrize("pattern", ["(?i)" + r"\pL" * 10_000, "(?i)" + r"\PL" * 20, "[ab]*a[ab]{900}[ab]*a[ab]{900}"])
def test_patterns(server: Server, pattern: str) -> None:
    with server.connect() as connection:  # the library is loaded with the first pattern
        connection.sendall(frame(ListTransactionsRequest(transactional_id_pattern="a"), 2))
        assert read_answer(connection)
    costs_little(server, [frame(ListTransactionsRequest(transactional_id_pattern=pattern), 2)] * 20)


def test_brokers_named_by_thousands_of_digits(server: Server) -> None:
    resources = [
        DescribeConfigsResource(resource_type=4, resource_name="0" * (LONGEST_NAME + n) + "x") for n in range(30)
    ]
    costs_little(server, [frame(DescribeConfigsRequest(resources=resources), 4)])
