"""The corpora have every API in every version of the registry: the sweeps, and for SASL the conversations."""

from __future__ import annotations

from oncelog.handlers.registry import APIS
from tests.conformance.golden.corpus import DATA
from tests.conformance.golden.replay import decode_request
from tests.conformance.logins.conversations import CONVERSATIONS, Ask
from tests.peers.recorder import Direction, load


def test_every_api_is_recorded_in_every_version() -> None:
    steps = [step for conversation in CONVERSATIONS for step in conversation.steps]
    seen = {(type(step.request).API_KEY, step.version) for step in steps if isinstance(step, Ask)}
    for recording in DATA.glob("sweep.*.xz"):
        for event in load(recording):
            if event.direction is Direction.REQUEST and (request := decode_request(event.frame)):
                seen.add((request.header.api_key, request.header.api_version))
    missing = [
        f"{api.name} v{version}"
        for api in APIS
        for version in range(api.min_version, api.max_version + 1)
        if (api.key, version) not in seen
    ]
    assert missing == []
