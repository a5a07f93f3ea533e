from __future__ import annotations

from oncelog.core.quotas.limits import ANY
from oncelog.runtime.metrics.broker_metrics import LABEL_LENGTH, MOST_CLIENTS, quota_metrics
from tests.scenario.node.driver import Driver


def test_only_the_clients_that_use_most_of_their_quota_are_named() -> None:
    driver = Driver()
    produce = driver.node.cluster.quotas.produce
    produce.limits.set((None, ANY), 1000.0)
    for number in range(3 * MOST_CLIENTS):
        produce.record("u", f"c{number}", number, driver.now_ms)
    produce.throttles.add(1500)
    result = {metric.name: metric for metric in quota_metrics(driver.node, driver.now_ms)}
    usage = result["oncelog_quota_usage"].samples
    assert len(usage) == MOST_CLIENTS
    assert usage[0].labels == {"quota": "produce", "user": "", "client_id": f"c{3 * MOST_CLIENTS - 1}"}
    assert usage[0].value == (3 * MOST_CLIENTS - 1) / 10
    assert {sample.value for sample in result["oncelog_quota_limit"].samples} == {1000.0}
    told = {sample.labels["quota"]: sample.value for sample in result["oncelog_quota_throttle_seconds"].samples}
    assert told == {"produce": 1.5, "fetch": 0, "request": 0, "controller_mutation": 0}


def test_names_of_peers_are_cut_in_labels() -> None:
    driver = Driver()
    produce = driver.node.cluster.quotas.produce
    names = ["c" * 30_000, "c" * 30_001]
    for name in names:
        produce.limits.set((None, name), 1000.0)
        produce.record("u", name, 1, driver.now_ms)
    result = {metric.name: metric for metric in quota_metrics(driver.node, driver.now_ms)}
    told = [sample.labels["client_id"] for sample in result["oncelog_quota_usage"].samples]
    assert len(set(told)) == len(names)
    assert all(len(name) == LABEL_LENGTH for name in told)
