"""Errors in words: the reason, the way on, the form with what was typed, and the last picture of a silent cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oncelog.admin.topics import NewTopic, create_topic
from oncelog.base.errors import ErrorCode
from oncelog.client.blocking import Client
from oncelog.client.errors import BrokerRefused, ClientError
from oncelog.console.admission.error_words import words_of
from oncelog.console.kept_forms import below_heading, refilled
from oncelog.console.last_pictures import MAX_BYTES, LastPictures
from oncelog.testing.broker import Broker
from tests.unit.console.visits import ORIGIN, token_of, visiting

QUICK = {"default.api.timeout.ms": "500", "request.timeout.ms": "500", "bootstrap.timeout.ms": "200"}


@pytest.mark.slow
def test_a_wrong_confirmation_shows_the_form_again_with_what_was_typed(broker: Broker, changer: TestClient) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("mended", partitions=1, replication_factor=1))
        client.topic("mended")
    page = "/topics/change?name=mended"
    form = {"token": token_of(changer, page), "total": "7", "typed": "men<ded"}
    sent = changer.post("/topics/extend?name=mended", data=form, headers={"referer": ORIGIN + page})
    assert sent.status_code == 409
    assert "Not confirmed." in sent.text
    assert "You typed &#39;men&lt;ded&#39;" in sent.text
    assert sent.text.count('value="men&lt;ded"') == 1, "in the form that was sent, not in its neighbours"
    assert 'value="7"' in sent.text
    assert "men<ded" not in sent.text
    elsewhere = changer.post("/topics/extend?name=mended", data=form, headers={"referer": "http://evil.example/x"})
    assert (elsewhere.status_code, "Not confirmed" in elsewhere.text) == (409, True)


@pytest.mark.slow
def test_a_mistyped_value_keeps_the_form(broker: Broker, changer: TestClient) -> None:
    with Client(broker.bootstrap_servers) as client:
        create_topic(client, NewTopic("mistyped", partitions=1, replication_factor=1))
        client.topic("mistyped")
    shown = changer.get("/topics/change?name=mistyped&key=retention.ms&value=3+days")
    assert shown.status_code == 502
    assert "The broker would refuse this" in shown.text
    assert 'value="3 days"' in shown.text
    unknown = changer.get("/topics/change?name=mistyped&key=retention.msec&value=3")
    assert "no configuration key" in unknown.text
    filtered = changer.get("/topics?filter=orders&page=x")
    assert (filtered.status_code, "Bad Request" in filtered.text) == (400, False)
    assert '<input name="page" value="x"' in filtered.text
    assert '<input name="filter" value="orders"' in filtered.text
    missing = changer.get("/topics/one?name=mistyped-2")
    assert "There is no such topic" in missing.text
    assert "/topics?filter=mistyped-2&amp;internal=1" in missing.text


@pytest.mark.slow
def test_the_last_picture_stays_when_the_cluster_is_silent(tmp_path: Path) -> None:
    with Broker() as broker:
        with Client(broker.bootstrap_servers) as client:
            create_topic(client, NewTopic("seen", partitions=1, replication_factor=1))
            client.topic("seen")
        log = tmp_path / "audit"
        with visiting(broker.bootstrap_servers, audit_log=log, client=QUICK, patience_s=2.0) as visitor:
            address = "/topics/change?name=seen&key=retention.ms&value=5"
            token = token_of(visitor, address)
            assert visitor.get("/transactions").status_code == 200
            broker.kill()
            silent = visitor.get(address)
            assert silent.status_code == 503
            assert "This is how it was" in silent.text
            assert "Add partitions (current: 1)" in silent.text
            assert 'class="old"' in silent.text
            assert "data-stale" in silent.text
            assert f'value="{token}"' in silent.text
            assert re.search("<title>.*oncelog</title>", silent.text)
            visitor.cookies.clear()
            another = visitor.get(address)
            assert "Add partitions" in another.text
            assert token not in another.text, "each session has its own token"
            assert "cluster does not answer" in visitor.get("/transactions", headers={"hx-target": "content"}).text
            part = visitor.get("/transactions", headers={"hx-target": "found"})
            assert "This is how it was" not in part.text
            assert visitor.get("/topics/change.json?name=seen&key=retention.ms&value=5").json()["status"] == 503
            new = visitor.get("/topics/one?name=seen")
            assert (new.status_code, "retries every 5 seconds" in new.text) == (503, True)


def test_words_name_the_cause_and_lead_to_it() -> None:
    no_leader = BrokerRefused(ErrorCode.LEADER_NOT_AVAILABLE, "orders-1")
    words = words_of(502, no_leader, "/messages", {"topic": "orders", "partition": "1"})
    assert words.title == "The partition has no leader"
    assert words.ways == (("why", "/explain", {"kind": "partition", "name": "orders", "partition": "1"}),)
    members = words_of(502, BrokerRefused(ErrorCode.NON_EMPTY_GROUP, "group 'g'"), "/groups/apply", {"name": "g"})
    assert members.ways == (("its members", "/groups/one", {"name": "g"}),)
    busy = words_of(503, ClientError("64 requests are already waiting for the cluster"), "/topics", {})
    assert busy.title == "The console is busy"
    titles = {
        words_of(status, None, "/x", {}).title for status in (400, 401, 403, 404, 405, 409, 413, 421, 429, 502, 503)
    }
    assert len(titles) == 11


def test_a_form_is_filled_with_what_was_typed() -> None:
    page = (
        '<div class="head"><h1>A</h1></div><form method="post" action="/a?name=x"><input type="hidden" name="plan" '
        'value="new"><input name="typed" value="" required><input type="password" name="secret"><input type="checkbox" '
        'name="all" value="1" checked><input type="checkbox" name="none" value="1"><textarea name="text" rows="2">old'
        '</textarea><select name="as"><option selected>json</option><option value="t">text</option></select></form>'
        '<form method="post" action="/b"><input name="typed"></form>'
    )
    fields = {"typed": ['"<b>'], "plan": ["old"], "secret": ["s"], "none": ["1"], "text": ["</textarea>x"], "as": ["t"]}
    filled = refilled(below_heading(page, "<p>why</p>"), "/a", fields)
    assert '</div>\n<p>why</p><form method="post" action="/a' in filled
    assert '<input value="&#34;&lt;b&gt;" name="typed" required>' in filled
    assert 'name="plan" value="new"' in filled
    assert '<input type="password" name="secret">' in filled
    assert '<input type="checkbox" name="all" value="1">' in filled
    assert '<input checked type="checkbox" name="none"' in filled
    assert "\n&lt;/textarea&gt;x</textarea>" in filled
    assert '<option>json</option><option value="t" selected>text' in filled
    assert filled.endswith('action="/b"><input name="typed"></form>')


def test_pictures_are_bounded_in_bytes_and_the_oldest_goes_first() -> None:
    pictures = LastPictures(lambda: 5)

    def page(text: str) -> bytes:
        return f'<title>t</title><main id="content">{text}<footer id="foot">f</footer></main>'.encode()

    pictures.keep("/large", page("x" * 600_000), "token")
    assert pictures.of("/large", "token") is None
    pictures.keep("/a", page("<b>1</b> token"), "token")
    kept = pictures.of("/a", "another")
    assert kept is not None
    assert (kept.title, kept.content, kept.at_ms) == ("t", "<b>1</b> another", 5)
    for number in range(20_000):
        pictures.keep(f"/{number}", page(str(number)), "token")
    assert pictures._size <= MAX_BYTES
    assert pictures.of("/a", "token") is None
    assert pictures.of("/19999", "token") is not None
