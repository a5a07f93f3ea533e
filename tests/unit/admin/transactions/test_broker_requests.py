"""Questions to many brokers at once, by both drivers and in virtual time."""

from __future__ import annotations

from typing import Any

from oncelog.admin.transactions.broker_requests import UNDER_WAY, BrokerRequest, Unanswered, send_requests
from oncelog.client.errors import ConnectionLost
from oncelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from tests.unit.client.programs.fake_brokers import LATENCY_MS, Runner
from tests.unit.client.programs.fake_brokers import runner as runner


class Refusing(set[int]):
    """Brokers that refuse connections; ``refused`` counts them."""

    refused = 0

    def __contains__(self, broker: object) -> bool:
        refuses = super().__contains__(broker)
        self.refused += refuses
        return refuses


def questions(*brokers: int) -> list[BrokerRequest[ListGroupsResponse]]:
    return [BrokerRequest(broker, ListGroupsRequest(), "its groups") for broker in brokers]


def answered(result: list[tuple[BrokerRequest[ListGroupsResponse], Any]]) -> list[tuple[int, str]]:
    """Each broker with the group that it told, or the error."""
    return [
        (question.broker, answer.reason if isinstance(answer, Unanswered) else answer.groups[0].group_id)
        for question, answer in result
    ]


def groups(broker: int, _: object) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[ListedGroup(group_id=f"of {broker}")])


def test_brokers_are_asked_side_by_side_a_few_requests_each(runner: Runner) -> None:
    runner.brokers.answers[ListGroupsRequest] = groups
    runner.run(runner.cluster.refresh_brokers())
    began_ms = runner.now_ms()
    requests = questions(*[1] * (UNDER_WAY + 1), 2, 3)
    assert answered(runner.run(send_requests(runner.cluster, requests))) == [
        (request.broker, f"of {request.broker}") for request in requests
    ]
    assert runner.now_ms() - began_ms == 2 * LATENCY_MS
    *first, last = runner.brokers.asked(ListGroupsRequest)
    assert (sorted(first), last) == ([1] * UNDER_WAY + [2, 3], 1)


def test_a_broker_that_is_away_is_connected_to_once(runner: Runner) -> None:
    runner.brokers.answers[ListGroupsRequest] = groups
    runner.run(runner.cluster.refresh_brokers())
    runner.brokers.down = away = Refusing({2})
    result = answered(runner.run(send_requests(runner.cluster, questions(*[2] * 10, 1))))
    assert result[-1] == (1, "of 1")
    assert {reason for broker, reason in result if broker == 2} == {
        "broker 2 cannot be reached where the cluster says it is: no broker at h:2"
    }
    assert (len(result), away.refused) == (11, 1)


def test_a_broker_that_fails_is_asked_no_more(runner: Runner) -> None:
    def lost(broker: int, _: object) -> ListGroupsResponse:
        raise ConnectionLost(f"broker {broker} is gone")

    runner.brokers.answers[ListGroupsRequest] = lost
    runner.run(runner.cluster.refresh_brokers())
    steps: list[int] = []
    result = runner.run(send_requests(runner.cluster, questions(*[1] * 20), lambda done, total: steps.append(done)))
    assert answered(result) == [(1, "broker 1 is gone")] * 20
    assert len(runner.brokers.asked(ListGroupsRequest)) <= UNDER_WAY
    assert steps == sorted(steps)
