"""Lists and ends transactions of other producers, for a coordinator of two-phase commits (KIP-939, KIP-664).

The rule: nothing here has a producer identity of its own. Errors that may pass are retried; error codes about the
transaction are returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from oncelog.base.errors import ErrorCode
from oncelog.base.ids import TopicName, group_by_key
from oncelog.client.blocking.client import Client
from oncelog.client.errors import BrokerRefused
from oncelog.client.machine.transaction_states import FENCED
from oncelog.client.machine.transaction_values import StoredTransaction
from oncelog.client.programs.cluster import TRANSACTION_KEY
from oncelog.client.programs.steps import raise_for_error
from oncelog.client.programs.stored_transactions import send_end
from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from oncelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest

OPEN: Final = "Ongoing"
CLAIMED: Final = "Empty"
IDS_PER_REQUEST: Final = 1000
_FIRST_LIST_WITH_PATTERN: Final = 2
_FINAL_CODES: Final = (*FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


class PresentIdentity(NamedTuple):
    """The current producer of a transactional id; ``is_claimed`` if InitProducerId assigned it and it is unused yet."""

    producer_id: int
    producer_epoch: int
    is_open: bool
    is_claimed: bool


def end_transaction(client: Client, stored: StoredTransaction, *, commit: bool) -> int:
    """Send EndTxn under a stored identity. Returns NONE, also if it already ended so, or the code of the refusal."""
    return client.retrying(lambda: _end(client, stored, commit))


def _end(client: Client, stored: StoredTransaction, commit: bool) -> int:
    code = send_end(client, stored, commit=commit).error_code
    if code == ErrorCode.NONE or code in _FINAL_CODES:
        return code
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        # The previous transaction completes within milliseconds.
        time.sleep(0.02)
    raise BrokerRefused(code, f"{'commit' if commit else 'abort'} of {stored}")


def present_identities(client: Client, names: Iterable[str]) -> dict[str, PresentIdentity]:
    """The current identities of transactional ids, without ids unknown to their coordinator. Raises BrokerRefused."""
    by_broker = group_by_key((client.coordinator(name, TRANSACTION_KEY), name) for name in names)
    identities: dict[str, PresentIdentity] = {}
    for broker_names in by_broker.values():
        for start in range(0, len(broker_names), IDS_PER_REQUEST):
            part = broker_names[start : start + IDS_PER_REQUEST]
            identities.update(client.retrying(lambda part=part: _describe(client, part)))  # type: ignore[misc]  # bound now
    return identities


def _describe(client: Client, names: list[str]) -> dict[str, PresentIdentity]:
    """Describe ``names``, with one request for each of their current coordinators."""
    by_broker = group_by_key((client.coordinator(name, TRANSACTION_KEY), name) for name in names)
    identities: dict[str, PresentIdentity] = {}
    for broker, part in by_broker.items():
        response = client.request(DescribeTransactionsRequest(transactional_ids=part), broker=broker)
        for transaction_state in response.transaction_states:
            if transaction_state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue
            raise_for_error(transaction_state, f"transactional id {transaction_state.transactional_id!r}")
            state = transaction_state.transaction_state
            identity = PresentIdentity(
                transaction_state.producer_id, transaction_state.producer_epoch, state == OPEN, state == CLAIMED
            )
            identities[transaction_state.transactional_id] = identity
    return identities


def open_transactions(
    client: Client, prefix: str, claimed: Callable[[str], bool] | None = None
) -> list[StoredTransaction]:
    """The open transactions of ids that begin with ``prefix``, from all coordinators. Raises BrokerRefused.

    ``claimed`` selects ids that count even without an open transaction: InitProducerId assigned them, and they are
    unused.
    """
    client.retrying(client.refresh)
    names: list[str] = []
    for broker in sorted(client.view.brokers):
        names += client.retrying(lambda broker=broker: _list(client, broker, prefix, claimed))  # type: ignore[misc]  # bound now
    identities = present_identities(client, names)
    return [
        StoredTransaction(name, identity.producer_id, identity.producer_epoch)
        for name, identity in identities.items()
        if identity.is_open or (claimed is not None and identity.is_claimed)
    ]


def _list(client: Client, broker: int, prefix: str, claimed: Callable[[str], bool] | None) -> list[str]:
    link = client.link(broker)
    message = ListTransactionsRequest(state_filters=[OPEN] if claimed is None else [OPEN, CLAIMED])
    # KIP-1152: older brokers list all ids, filtered below.
    if link.versions.supports(ListTransactionsRequest, _FIRST_LIST_WITH_PATTERN):
        message.transactional_id_pattern = _literal(prefix) + ".*"
    response = link.call(message)
    raise_for_error(response, f"open transactions of {prefix!r}")
    return [
        state.transactional_id
        for state in response.transaction_states
        if state.transactional_id.startswith(prefix)
        and (state.transaction_state == OPEN or (claimed is not None and claimed(state.transactional_id)))
    ]


def _literal(text: str) -> str:
    """A regular expression (RE2) that matches exactly ``text``."""
    return "".join(char if char.isalnum() or char in "_/ " else f"\\{char}" for char in text)


def ensure_topic(
    client: Client, name: str, partitions: int, configs: Mapping[str, str], *, replication_factor: int = -1
) -> None:
    """Create a topic unless it exists, and wait until a broker reports it: Apache Kafka's brokers learn of new topics
    with a delay. −1 is the cluster's default replication factor. Raises BrokerRefused.
    """
    topic_configs = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, configs=topic_configs
    )

    def attempt() -> None:
        response = client.request(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), broker="controller")
        result = response.topics[0]
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise BrokerRefused(result.error_code, f"topic {name}", result.error_message)

    def wait_until_reported() -> None:
        info = client.metadata([name]).get(TopicName(name))
        if info is None or not info.exists:
            raise BrokerRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}, which has just been created")

    client.retrying(attempt)
    client.retrying(wait_until_reported)
