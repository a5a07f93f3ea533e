"""The refusals are recorded beside Apache Kafka in the golden corpus (``sweep.alter-client-quotas``)."""

from __future__ import annotations

import math

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.core.controller.entities.client_quotas import (
    MatchType,
    QuotaAlteration,
    QuotaEntity,
    alter_client_quotas,
    matching_quotas,
    quota_entity,
    quota_filter,
    quotas_of,
)
from oncelog.core.controller.entities.entity_writes import write_entities
from oncelog.core.controller.image.client_entities import ClientEntity
from oncelog.core.controller.image.cluster_image import ClusterImage, configs_of
from oncelog.core.controller.outcomes import Refusal
from tests.unit.core.controller.cluster import applied, cluster

ALICE: QuotaEntity = (("user", "alice"),)


def altered(image: ClusterImage, *alterations: QuotaAlteration) -> ClusterImage:
    decided = alter_client_quotas(image, alterations)
    assert not any(isinstance(outcome, Refusal) for outcome in decided.outcomes)
    return applied(image, decided.operations)


def test_quotas_and_credentials_of_a_user_stand_beside_each_other() -> None:
    image = applied(cluster(), write_entities(cluster(), {ClientEntity("alice"): {"SCRAM-SHA-256": "salt=..."}}))
    image = altered(image, QuotaAlteration(ALICE, [("producer_byte_rate", 1024.0), ("request_percentage", 12.5)]))
    configs = configs_of(image, ClientEntity("alice"))
    assert configs == {"SCRAM-SHA-256": "salt=...", "producer_byte_rate": "1024", "request_percentage": "12.5"}
    assert quotas_of(configs) == {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    image = altered(image, QuotaAlteration(ALICE, [("producer_byte_rate", None), ("SCRAM-SHA-256", None)]))
    assert configs_of(image, ClientEntity("alice")) == {"SCRAM-SHA-256": "salt=...", "request_percentage": "12.5"}


def test_a_user_with_credentials_only_is_not_described() -> None:
    image = applied(cluster(), write_entities(cluster(), {ClientEntity("alice"): {"SCRAM-SHA-256": "salt=..."}}))
    assert matching_quotas(image, quota_filter([], strict=False)) == []


def test_one_refused_leaves_the_others_in_force() -> None:
    decided = alter_client_quotas(
        cluster(),
        [QuotaAlteration((), []), QuotaAlteration(ALICE, [("producer_byte_rate", 1.0)])],
    )
    assert isinstance(decided.outcomes[0], Refusal)
    assert quotas_of(configs_of(applied(cluster(), decided.operations), ClientEntity("alice")))


def test_an_entity_is_what_was_named_last_in_one_order() -> None:
    named = [("user", "a"), ("ip", "i"), ("client-id", None), ("user", "b"), ("odd", "x")]
    assert quota_entity(named) == (("client-id", None), ("user", "b"), ("ip", "i"), ("odd", "x"))


@pytest.mark.parametrize("value", [1e300, 0.1 + 0.2, 1e-7, 2.0**60])
def test_a_quota_is_read_as_it_was_set(value: float) -> None:
    image = altered(cluster(), QuotaAlteration(ALICE, [("request_percentage", value)]))
    assert quotas_of(configs_of(image, ClientEntity("alice"))) == {"request_percentage": value}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_quota_is_a_finite_number(value: float) -> None:
    """As in Apache Kafka since 4.4."""
    decided = alter_client_quotas(cluster(), [QuotaAlteration(ALICE, [("producer_byte_rate", value)])])
    assert decided.outcomes == [Refusal(ErrorCode.INVALID_REQUEST, "Quota producer_byte_rate must be a finite number")]
    assert not decided.operations


def test_a_default_is_found_by_its_match_type_only() -> None:
    image = altered(cluster(), QuotaAlteration((("client-id", None),), [("producer_byte_rate", 1.0)]))
    for match_type, count in ((MatchType.DEFAULT, 1), (MatchType.SPECIFIED, 1)):
        assert len(matching_quotas(image, quota_filter([("client-id", match_type, None)], strict=True))) == count
    assert matching_quotas(image, quota_filter([("client-id", MatchType.EXACT, "")], strict=True)) == []
