"""The metrics of groups have a series for every state that a group can be in."""

from __future__ import annotations

from oncelog.core.groups.classic.states import GroupState
from oncelog.core.groups.consumer.group import ConsumerGroupState
from oncelog.core.groups.share.group import ShareGroupState
from oncelog.runtime.metrics.broker_metrics import GROUP_STATES


def test_every_state_but_dead_has_a_series() -> None:
    assert {protocol: {*states} for protocol, states in GROUP_STATES.items()} == {
        "classic": {state.value for state in GroupState} - {"Dead"},
        "consumer": {state.value for state in ConsumerGroupState} - {"Dead"},
        "share": {state.value for state in ShareGroupState},
    }
