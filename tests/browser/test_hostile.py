"""Records, names and ids made to harm whoever looks at them: shown as text, executed by nobody, within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.client.blocking import Client, ClientConfig, Committed, GroupConsumer, GroupSettings
from oncelog.client.blocking.producer import Producer, ProducerSettings
from oncelog.client.programs.group import commit_offsets
from oncelog.testing import Broker
from tests.browser.served import Served
from tests.browser.watch import Open, Tab
from tests.interop.admin.lab import ByHand, at

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]

TOPIC = "hostile." + "w" * 241
"""The longest name of a topic; others than letters, digits and three signs brokers do not take."""
HARM = (
    "<script>window.harmed = 1</script>",
    "<img src=x onerror='window.harmed = 1'>\"'><svg/onload=alert(1)>",
    "<a href='javascript:alert(1)'>here</a><base href=//evil.example>",
    "<div hx-get=/topics hx-trigger=load hx-target=body></div><form action=/topics/delete method=post>",
    "</bdi></td></table></main><style>*{display:none}</style><meta http-equiv=refresh content=0;url=//evil.example>",
    "{{ 1234 * 5678 }}{% include 'login.html' %}${1234 * 5678}<%= 1234 * 5678 %>",
    "before\u202eafter\u2066\u200b\u00ad\ufeff",
    "one\r\n\r\nevent: failed\r\ndata: <script>window.harmed = 1</script>\r\n\r\ntwo",
    "zero\x00byte\x1b[31m\x7f\u2028\u2029\U000e0041",
    "%3Cscript%3E&lt;script&gt;&#60;",
)
BYTES = (*(item.encode() for item in HARM), b"\xff\xfe\xc3\x28\xed\xa0\x80", b"\x00" * 64, b"[" * 5000)
WORST = "".join(HARM)[:200]
LARGE = 10_000_000
HARMED = """() => {
  const foreign = "script:not([src^='/static/']), base, style, img, iframe, meta[http-equiv], [onerror], [onload]";
  const text = document.body.innerText;
  return [
    ...(window.harmed ? ["a script ran"] : []),
    ...[...document.querySelectorAll(foreign)].map((one) => one.outerHTML),
    ...[...document.querySelectorAll("main [hx-trigger='load'], a[href^='javascript'], form[action='/topics/delete']")]
      .map((one) => one.outerHTML),
    ...[...text.matchAll(/[\\p{Cf}\\p{Co}]|[^\\P{Cc}\\n\\t]/gu)].map((one) => `invisible: ${one[0].codePointAt(0)}`),
    ...(text.includes("7006652") ? ["a template ran"] : []),
  ];
}"""


@pytest.fixture(scope="module")
def hostile(broker: Broker) -> Iterator[Broker]:
    """The broker of all tests, with a topic, a group with a member, and transactions of the worst names."""
    config = ClientConfig(client_id=WORST, retry_backoff_ms=20)
    with Client(broker.bootstrap_servers, config=config) as client:
        create_topic(client, NewTopic(TOPIC, 2, configs={"max.message.bytes": str(2 * LARGE)}))
        client.topic(TOPIC)
        with Producer(client, ProducerSettings(batch_bytes=2 * LARGE), buffer_bytes=4 * LARGE) as producer:
            for item in BYTES:
                headers = ((item.decode("utf-8", "replace"), item), ("", None))
                producer.send(TOPIC, item, key=item, partition=0, headers=headers)
            producer.flush()
            producer.send(TOPIC, b"<b>" + b"x" * LARGE, key=b"y" * 100_000, partition=0)
        ByHand(client, WORST, timeout_ms=900_000).begin(at(TOPIC, 1))
        late = ByHand(client, WORST[::-1])
        late.begin(at(TOPIC, 0))
        late.end()
        late.write(at(TOPIC, 0), timestamp_ms=1)
        for name in HARM:
            commit_offsets(client, name, {at(TOPIC, 1): Committed(0)})
        with GroupConsumer(client, WORST, [TOPIC], settings=GroupSettings(session_timeout_ms=1_800_000)) as member:
            while not member.has_joined:
                member.poll(100)
            yield broker


def states() -> list[str]:
    """The addresses that show what is hostile."""
    topic, worst = quote(TOPIC), quote(WORST, safe="")
    return [
        "/overview",
        "/topics",
        f"/topics?filter={worst}",
        f"/topics/one?name={topic}",
        f"/topics/one?name={worst}",
        f"/topics/change?name={topic}&key={worst}",
        f"/messages?topic={topic}&from=first",
        *(f"/messages?topic={topic}&from=first&value_format={form}" for form in ("text", "hex", "json")),
        *(f"/messages/one?topic={topic}&partition=0&offset={offset}" for offset in range(len(BYTES))),
        "/groups",
        f"/groups/one?name={worst}",
        *(f"/groups/one?name={quote(item, safe='')}" for item in HARM),
        f"/groups/reset?name={quote(HARM[0], safe='')}&to=latest",
        f"/transactions?topic={topic}&min_age_ms=0",
        f"/transactions/one?topic={topic}&partition=1&start_offset=0",
        f"/transactions/bulk?topic={topic}&min_age_ms=0",
        "/transactions/ids",
        f"/transactions/ids?id={worst}",
        f"/transactions/ids?pattern={worst}",
        f"/producers?topic={topic}",
        *(f"/explain?kind={kind}&name={worst}" for kind in ("group", "topic", "txn")),
        f"/explain?kind=partition&name={topic}&partition=1",
        f"/messages/search?topic={worst}&q={worst}",
        f"/{worst}",
    ]


def test_nothing_is_executed_and_nothing_hides(tabs: Open, console: Served, hostile: Broker) -> None:
    tab = tabs(console.origin, viewport={"width": 375, "height": 667})
    results = []
    for state in states():
        tab.page.goto(state)
        results += [f"{state}: {line}" for line in tab.page.evaluate(HARMED)]
        results += [f"{state} is too wide: {line}" for line in tab.overflow()]
        if state.startswith(("/transactions", "/groups/one")):
            results += [f"{state}, axe: {line}" for line in tab.axe()]
    assert not results, "\n".join(results)


def test_neither_is_what_comes_in_a_stream(tab: Tab, hostile: Broker) -> None:
    page = tab.page
    page.goto(f"/messages/search?topic={TOPIC}&q=e")
    expect(page.get_by_text("Search complete")).to_be_visible()
    assert page.locator("#hits tr").count() >= 7
    assert page.evaluate(HARMED) == []
    expect(page.locator("#failed")).to_be_empty()
    page.goto(f"/messages/tail?topic={TOPIC}")
    expect(page.get_by_text("waiting for records")).to_be_visible()
    with Client(hostile.bootstrap_servers) as client, Producer(client) as producer:
        for item in BYTES:
            producer.send(TOPIC, item, key=item, partition=1, headers=((item.decode("utf-8", "replace"), item),))
    expect(page.locator("#hits tr")).to_have_count(len(BYTES))
    assert page.evaluate(HARMED) == []
    expect(page.locator("#failed")).to_be_empty()


def test_a_value_of_ten_megabytes_makes_no_page_large(tab: Tab, hostile: Broker) -> None:
    page = tab.page
    listed = page.goto(f"/messages?topic={TOPIC}&partition=0&from={len(BYTES)}")
    assert listed is not None
    assert len(listed.body()) < 50_000
    expect(page.get_by_text("of 9.6 MiB")).to_be_visible()
    page.locator("summary").filter(has_text="<b>xxx").click()
    expect(page.get_by_role("link", name="load all")).to_have_count(2)
    page.get_by_role("link", name="this record").click()
    expect(page.get_by_role("heading", name="Value (text, 9.5 MiB)")).to_be_visible()
    assert 2_000_000 < len(page.content()) < 2_300_000
    assert page.evaluate("document.querySelectorAll('*').length") < 300
    goto = page.goto(f"/messages/search?topic={TOPIC}&q=xxxx")
    assert goto is not None
    expect(page.get_by_text("Search complete")).to_be_visible()
    assert len(page.content()) < 20_000


def test_a_name_is_copied_as_it_is(tab: Tab, hostile: Broker) -> None:
    page = tab.page
    page.goto(f"/groups/one?name={quote(HARM[6], safe='')}")
    copied = page.evaluate(
        """() => {
          let text = null;
          window.addEventListener("copy", (event) => { text = event.clipboardData.getData("text/plain"); });
          getSelection().selectAllChildren(document.querySelector("h1 .name"));
          document.execCommand("copy");
          return text;
        }"""
    )
    assert copied == HARM[6]


def test_names_lead_to_their_pages_and_back(tab: Tab, hostile: Broker) -> None:
    page = tab.page
    page.goto("/groups?filter=window.harmed")
    page.get_by_role("link", name=HARM[0], exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Group {HARM[0]}")
    page.get_by_role("link", name="this page as JSON").click()
    assert page.evaluate("JSON.parse(document.body.innerText).group.group") == HARM[0]
    page.go_back()
    page.get_by_role("link", name="Explain", exact=True).last.click()
    expect(page.get_by_label("name")).to_have_value(HARM[0])
    expect(page.get_by_text("risk: held-by-transaction")).to_be_visible()
