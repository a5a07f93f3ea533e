"""Every API and version, asked by principals with one right each: the answers of Apache Kafka's StandardAuthorizer.

The script that was recorded is run against a node in memory, whose connections are given their principals directly. The
answers are compared field by field; `exceptions.py` says what may differ and why.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

from oncelog.handlers.registry import APIS
from tests.conformance.authorization.corpus import PROPERTIES, Recorded, load
from tests.conformance.authorization.exceptions import adapt
from tests.conformance.authorization.questions.asking import Known
from tests.conformance.authorization.questions.table import QUESTIONS
from tests.conformance.authorization.script import Answer, answers
from tests.conformance.authorization.world import DOOMED, HIDDEN, HOST, TOPIC
from tests.conformance.golden.compare import Translation, differences
from tests.scenario.node.driver import Driver, Peer

SHOWN: Final = 40


class Principals:
    """A connection for each principal to a node in memory."""

    def __init__(self) -> None:
        self.driver = Driver(PROPERTIES)
        self.driver.node.directory.measure = lambda: (1_000, 1_000)
        self._peers: dict[str, Peer] = {}

    def ask(self, principal: str, message: Any, version: int) -> Any:
        """The answer to a principal; None when the node closed the connection."""
        peer = self._peers.get(principal)
        if peer is None:
            peer = self._peers[principal] = self.driver.connect(principal=f"User:{principal}", host=f"/{HOST}")
        peer.send(message, version)
        if peer.closed:
            del self._peers[principal]
            return None
        for _ in range(100):
            if peer.responses:
                return peer.responses.popleft()
            self.driver.advance(100)
        raise AssertionError(f"no response to {message}")


def different(recorded: Recorded, ours: Answer, translation: Translation) -> list[str]:
    """The differences in one answer."""
    if (recorded.response is None) != (ours.response is None):
        closing = "Apache Kafka closes" if recorded.response is None else "ours closes"
        return [f"{closing} the connection"]
    if recorded.response is None:
        return []
    api = type(ours.request).__name__.removesuffix("Request")
    theirs = ours.request.response_class().decode(recorded.response, ours.version)
    mine = ours.request.response_class().decode(
        b"".join(bytes(chunk) for chunk in ours.response.encode(ours.version)), ours.version
    )
    adapt(api, theirs, mine)
    return list(differences(api, theirs, mine, translation))


@pytest.mark.slow
def test_every_answer_is_apache_kafkas() -> None:
    translation = Translation()
    results: list[str] = []
    requests: Counter[str] = Counter()
    for recorded, ours in zip(load(), answers(Principals().ask), strict=True):
        assert recorded.label == ours.label
        requests[ours.question] += 1
        results += [f"{ours.label}: {line}" for line in different(recorded, ours, translation)]
    assert not results, f"{len(results)} differences:\n" + "\n".join(results[:SHOWN])
    assert set(QUESTIONS) <= set(requests)


def test_every_api_is_asked() -> None:
    known = Known()
    known.topic_ids.update(dict.fromkeys((TOPIC, HIDDEN, DOOMED), bytes(15) + b"\1"))
    keys = {
        request.API_KEY
        for question in QUESTIONS.values()
        for request in (question(version, known) for version in range(20))
        if request is not None
    }
    unasked = {api.name for api in APIS if api.key not in keys}
    assert {name for name in unasked if not name.endswith("DelegationToken")} == {"SaslHandshake", "SaslAuthenticate"}


def main(only: str = "") -> None:
    """Print all differences, or those of the questions whose names begin so."""
    translation = Translation()
    by_label: dict[str, list[Recorded]] = {}
    for item in load():
        by_label.setdefault(item.label, []).append(item)
    for ours in answers(Principals().ask, only):
        for line in different(by_label[ours.label].pop(0), ours, translation):
            print(f"{ours.label}: {line}")


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
