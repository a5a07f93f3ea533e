"""The way of somebody on call, in a browser, on oncelog and on Apache Kafka: from a stuck group to its release."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from playwright.sync_api import Page, expect

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, Committed
from oncelog.client.programs.group import commit_offsets
from oncelog.testing import Broker
from tests.browser import scene
from tests.browser.conftest import OnCall
from tests.browser.watch import Open
from tests.interop.admin.lab import ByHand, at

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(params=["oncelog", pytest.param("kafka", marks=pytest.mark.java)])
def on_call(request: pytest.FixtureRequest) -> OnCall:
    """One, then the other."""
    if request.param == "kafka":
        getfixturevalue: OnCall = request.getfixturevalue("kafka")
        return getfixturevalue
    broker: Broker = request.getfixturevalue("broker")
    return OnCall(broker.bootstrap_servers, request.getfixturevalue("console"), request.getfixturevalue("audit_log"))


def hang(servers: str, topic: str, names: list[str]) -> None:
    """A topic with a committed record, then transactions that hang, each with a committed record behind it."""
    with Client(servers) as client:
        create_topic(client, NewTopic(topic, partitions=1, replication_factor=1))
        client.topic(topic)
        other = ByHand(client, f"{topic}-other")
        other.begin(at(topic))
        other.end()
        for name in names:
            late = ByHand(client, name)
            late.begin(at(topic))
            late.end()
            late.write(at(topic), timestamp_ms=scene.now_ms() - scene.LONG_AGO_MS)
            other.restart()
            other.begin(at(topic))
            other.end()
        commit_offsets(client, f"{topic}-group", {at(topic): Committed(0)})


def read_committed(servers: str, group: str, topic: str) -> tuple[list[int], int]:
    """The offsets that a consumer of committed records gets from where its group is, and the position it ends at."""
    config = {"bootstrap.servers": servers, "group.id": group, "isolation.level": "read_committed"}
    consumer = Consumer({**config, "enable.partition.eof": True, "enable.auto.commit": False})
    try:
        consumer.assign(consumer.committed([TopicPartition(topic, 0)], timeout=600))
        results: list[int] = []
        while True:
            message = consumer.poll(60)
            if message is None:
                continue
            if message.error() is None:
                results.append(message.offset())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return results, message.offset()
            else:
                raise AssertionError(message.error())
    finally:
        consumer.close()


def cells(page: Page, row: int = 0) -> dict[str, str]:
    """The texts of a row of the first table, by the names of its columns."""
    names = [text.strip() for text in page.locator("table").first.locator("th").all_inner_texts()]
    texts = page.locator("table").first.locator("tbody tr").nth(row).locator("td").all_inner_texts()
    return dict(zip(names, (text.strip() for text in texts), strict=True))


def test_from_a_stuck_group_to_its_release(tabs: Open, on_call: OnCall) -> None:
    hang(on_call.servers, "stuck", ["stuck-late"])
    page = tabs(on_call.console.origin).page
    page.goto("/groups/one?name=stuck-group")
    before = cells(page)
    read, end = read_committed(on_call.servers, "stuck-group", "stuck")
    assert read == [0, 2], "a record of each transaction that was committed before the one that hangs"
    assert (before["committed"], before["last stable offset"], before["end"]) == ("0", str(end), "7")
    assert (before["lag, read_committed"], before["lag to the end"]) == (str(end), "7")
    assert before["held by"].split() == ["hanging", "stuck-late", "for", "1", "h"]

    page.get_by_role("link", name="Explain", exact=True).last.click()
    expect(page.get_by_role("heading", name="held-by-transaction").first).to_contain_text("stuck-0")
    command = page.locator(".command code").filter(has_text="txn abort").first
    expect(command).to_have_text("oncelog txn abort --topic stuck --partition 0 --start-offset 4")
    page.get_by_role("link", name="The transaction, and how to end it").click()
    expect(page.get_by_role("heading", name="Abort on this partition (dry run)")).to_be_visible()
    confirm = page.get_by_label("To confirm")
    confirm.fill("stuck-other")
    page.get_by_role("button", name="Abort transaction").click()
    expect(page.get_by_role("alert").first).to_contain_text("Nothing was done")
    confirm.fill("stuck-late")
    page.get_by_role("button", name="Abort transaction").click()
    expect(page.get_by_role("status")).to_contain_text("Last stable offset: 4 → 8, end offset 8.")
    assert on_call.outcomes("stuck-late")[-2:] == [("abort", "sending"), ("abort", "aborted")]

    page.goto("/groups/one?name=stuck-group")
    after = cells(page)
    read, end = read_committed(on_call.servers, "stuck-group", "stuck")
    assert read == [0, 2, 5]
    assert (after["last stable offset"], after["end"], after["held by"]) == (str(end), "8", "")
    page.goto("/messages?topic=stuck&from=first")
    rows = page.locator("tbody tr")
    states = [[item.inner_text() for item in row.locator("td").all()][:2] for row in rows.all()]
    assert [int(offset) for offset, state in states if state == "committed"] == read


def test_many_that_hang_are_ended_by_the_list_that_is_shown(tabs: Open, on_call: OnCall) -> None:
    hang(on_call.servers, "stuck.bulk", ["bulk-1", "bulk-2"])
    page = tabs(on_call.console.origin).page
    page.goto("/transactions?topic=stuck.bulk")
    page.get_by_role("link", name="Abort all hanging…").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_label("To confirm").fill("abort 2")
    page.get_by_role("button", name="Abort transactions").click()
    expect(page.get_by_role("status").get_by_text("aborted; last stable offset")).to_have_count(2)
    page.goto("/transactions?topic=stuck.bulk")
    expect(page.get_by_text("No transaction is open in the 1 partitions that were read.")).to_be_visible()


def test_a_live_transaction_is_left_to_its_coordinator(tabs: Open, on_call: OnCall) -> None:
    with Client(on_call.servers) as client:
        create_topic(client, NewTopic("living", partitions=1, replication_factor=1))
        client.topic("living")
        ByHand(client, "living-service", timeout_ms=900_000).begin(at("living"))
    page = tabs(on_call.console.origin).page
    page.goto("/transactions?topic=living&min_age_ms=0")
    row = cells(page)
    assert (row["verdict"], row["transactional id"], row["blocked offsets"]) == ("live", "living-service", "1")
    page.get_by_role("link", name="0", exact=True).first.click()
    expect(page.get_by_text("Refused: it is live")).to_be_visible()
    expect(page.get_by_role("button", name="Abort transaction")).to_have_count(0)
    page.goto("/transactions/ids?pattern=living.*")
    page.get_by_role("link", name="living-service").click()
    page.get_by_label("To confirm").fill("living-service")
    page.get_by_role("button", name="Force-terminate").click()
    expect(page.get_by_role("status")).to_contain_text("Ongoing →")
    assert on_call.outcomes("living-service")[-1][0] == "force-terminate"
    page.goto("/messages?topic=living")
    expect(page.get_by_role("row").nth(2)).to_contain_text("aborted")


def test_the_overview_and_the_transactions_name_who_holds_whom(tabs: Open, on_call: OnCall) -> None:
    page = tabs(on_call.console.origin).page
    page.goto("/overview")
    expect(page.get_by_role("link", name=re.compile(r"^1 of 1 brokers up"))).to_be_visible()
    held = page.locator(".problems li").filter(has_text=scene.HUNG).first
    expect(held).to_contain_text(scene.BILLING)
    expect(held).to_contain_text(f"{scene.ORDERS}-0")
    expect(held).to_contain_text("hanging")
    held.get_by_role("link", name="end it…").click()
    expect(page.get_by_text("these records came after the marker")).to_be_visible()
    page.goto(f"/transactions?topic={scene.ORDERS}")
    row = cells(page)
    assert (row["transactional id"], row["from offset"], row["blocked offsets"]) == (scene.HUNG, "4", "7")
    page.goto(f"/transactions?topic={scene.PAYMENTS}&verdict=suspected&min_age_ms=86400000")
    assert cells(page)["partition"] == f"{scene.PAYMENTS}-1"
    page.goto(f"/producers?topic={scene.ORDERS}&partition=0&open=1")
    assert cells(page)["open since offset"] == "4"


def test_offsets_are_reset_by_the_plan_that_was_shown(tabs: Open, on_call: OnCall) -> None:
    with Client(on_call.servers) as client:
        commit_offsets(client, "reset-desk", {at(scene.ORDERS, 1): Committed(scene.BULK)})
    page = tabs(on_call.console.origin).page
    page.goto("/groups/one?name=reset-desk")
    page.get_by_role("link", name="reset offsets").click()
    page.locator("select[name=to]").select_option("shift")
    page.get_by_label("value").fill("-10")
    with page.expect_navigation():
        page.get_by_role("button", name="Plan").click()
    plan = cells(page)
    assert (plan["committed"], plan["new"], plan["change"]) == (str(scene.BULK), str(scene.BULK - 10), "-10")
    with Client(on_call.servers) as client:
        commit_offsets(client, "reset-desk", {at(scene.ORDERS, 1): Committed(scene.BULK - 1)})
    page.get_by_label("To confirm").fill("reset-desk")
    page.get_by_role("button", name="Commit these offsets").click()
    expect(page.get_by_role("alert").first).to_contain_text("has moved since the plan was shown")
    assert cells(page)["new"] == str(scene.BULK - 11)
    expect(page.get_by_label("To confirm")).to_have_value("")
    page.get_by_label("To confirm").fill("reset-desk")
    page.get_by_role("button", name="Commit these offsets").click()
    expect(page.get_by_role("status")).to_contain_text("1 offsets moved.")
    assert on_call.outcomes("reset-desk")[-1] == ("reset-offsets", "done")
