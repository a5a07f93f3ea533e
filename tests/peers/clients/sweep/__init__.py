"""Every API in every version of the registry, with requests that are right and requests that are not.

Made with our own message classes, so the corpus has old versions and refusals that no well-behaved client sends. Each
scenario is one API; it asserts nothing itself: what Apache Kafka answered is the expectation.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.peers.clients.scenario import Scenario
from tests.peers.clients.sweep import (
    acls,
    client_quotas,
    cluster,
    configs,
    consumer_groups,
    data,
    groups,
    offsets,
    produce,
    reassignments,
    share_fetches,
    share_groups,
    share_states,
    topics,
    transaction_data,
    transactions,
)
from tests.peers.clients.sweep.wire import Wire

_SWEEPS: Final = {
    **produce.SWEEPS,
    **data.SWEEPS,
    **offsets.SWEEPS,
    **groups.SWEEPS,
    **consumer_groups.SWEEPS,
    **topics.SWEEPS,
    **configs.SWEEPS,
    **cluster.SWEEPS,
    **acls.SWEEPS,
    **client_quotas.SWEEPS,
    **reassignments.SWEEPS,
    **transactions.SWEEPS,
    **transaction_data.SWEEPS,
    **share_groups.SWEEPS,
    **share_fetches.SWEEPS,
    **share_states.SWEEPS,
}


def _run(name: str, bootstrap: str) -> None:
    with Wire(bootstrap) as wire:
        _SWEEPS[name](wire)


SCENARIOS: Final[dict[str, Scenario]] = {name: partial(_run, name) for name in _SWEEPS}
