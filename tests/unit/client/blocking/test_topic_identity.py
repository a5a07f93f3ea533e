"""A topic is known from another one of its name, and a broker that is behind is not believed at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import NO_TOPIC_ID, TopicId
from oncelog.client.blocking import Client, ClientConfig
from oncelog.client.blocking.topic_identity import ReplacedTopic, TopicWatch
from oncelog.client.errors import UnknownTopic
from oncelog.client.machine.metadata import ClusterView, TopicInfo
from oncelog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

GRACE_MS = 1000
OLD, NEW = TopicId(bytes(15) + b"\x01"), TopicId(bytes(15) + b"\x02")
MISSING = None


@dataclass
class FakeClient:
    """A cluster whose brokers answer in turn: an id, or that there is no such topic. The last answer stays."""

    answers: list[TopicId | None]
    view: ClusterView = field(default_factory=ClusterView)
    config: ClientConfig = field(default_factory=lambda: ClientConfig(unknown_topic_grace_ms=GRACE_MS))
    now: int = 0

    @property
    def system(self) -> FakeClient:
        return self

    def now_ms(self) -> int:
        return self.now

    def pause(self, attempt: int) -> None:
        self.now += 300

    def metadata(self) -> None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if answer is MISSING else ErrorCode.NONE
        topic = MetadataResponseTopic(name="t", topic_id=answer or NO_TOPIC_ID, error_code=code)
        self.view.apply(MetadataResponse(topics=[topic]), self.now)

    def topic(self, name: str) -> TopicInfo:
        if self.view.age_ms(name, self.now) is None:
            self.metadata()
        if not self.view.topics[name].exists:
            raise UnknownTopic(name)
        return self.view.topics[name]


def watch(*answers: TopicId | None) -> tuple[FakeClient, TopicWatch]:
    client = FakeClient(list(answers))
    return client, TopicWatch(cast("Client", client))


@pytest.mark.parametrize(
    ("answers", "wanted", "expected"),
    [
        pytest.param([OLD], OLD, None, id="the same"),
        pytest.param([OLD], None, None, id="whichever it is"),
        pytest.param([OLD, OLD, NEW], NEW, None, id="a broker that is behind for a moment"),
        pytest.param([NEW], OLD, ReplacedTopic("t", NEW), id="created anew"),
        pytest.param([MISSING], OLD, ReplacedTopic("t", None), id="deleted"),
        pytest.param([NO_TOPIC_ID], OLD, None, id="brokers without ids"),
    ],
)
def test_reading_begins_with_the_topic_that_is_wanted(
    answers: list[TopicId | None], wanted: TopicId | None, expected: ReplacedTopic | None
) -> None:
    client, watched = watch(*answers)
    assert watched.begin("t", wanted) == expected
    assert client.now <= GRACE_MS + 300


def test_another_id_while_reading_is_another_topic_at_once() -> None:
    client, watched = watch(OLD, OLD, NEW)
    watched.begin("t")
    client.metadata()
    assert watched.replaced() == []
    client.metadata()
    assert watched.replaced() == [ReplacedTopic("t", NEW)]
    watched.end("t")
    assert watched.replaced() == []


def test_a_topic_that_is_not_there_gets_some_grace() -> None:
    client, watched = watch(OLD, MISSING, OLD, MISSING)
    watched.begin("t")
    for missing in (True, False, True):
        client.metadata()
        assert watched.replaced() == []
        client.now += GRACE_MS - 1
        assert watched.replaced() == []
        client.now += 1
        assert watched.replaced() == ([ReplacedTopic("t", None)] if missing else [])
