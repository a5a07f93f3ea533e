"""The mode of ``exactlyOnce`` that a cluster supports, found out by a probe: InitProducerId 6 with Enable2Pc on an id
that no query has."""

from __future__ import annotations

import logging
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.client.blocking import Client, TransactionalProducer, TransactionSettings
from oncelog.client.errors import BrokerRefused, UnsupportedRequest
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.options import Mode
from oncelog.spark.sink.two_phase.protocol import driver_id

PROBE_ID: Final = driver_id("probe:")
"""The probe's id, under the prefix of the sink's ids, for access rules; no query is named so."""
LOG: Final = logging.getLogger("oncelog.spark.sink")
_NOT_THERE: Final = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)


def choose(client: Client, wanted: Mode) -> Mode:
    """The mode to use. Raises SinkError when two-phase commit is wanted and the cluster does not have it."""
    if wanted in (Mode.OFF, Mode.LEDGER):
        return wanted
    missing = why_not_two_phase(client)
    if missing is None:
        return Mode.TWO_PHASE
    if wanted is Mode.TWO_PHASE:
        raise SinkError(f"exactlyOnce=2pc: {missing}; exactlyOnce=ledger does without it")
    LOG.debug("no two-phase commit: %s", missing)
    return Mode.LEDGER


def why_not_two_phase(client: Client) -> str | None:
    """The reason why the cluster has no two-phase commit; None if it has."""
    producer = TransactionalProducer(client, TransactionSettings(PROBE_ID, two_phase=True))
    try:
        producer.initialize()
    except UnsupportedRequest:
        return "the cluster has no InitProducerId 6 (Apache Kafka has not, unless its unstable APIs are enabled)"
    except BrokerRefused as error:
        if error.code in _NOT_THERE:
            return "the brokers are not configured with transaction.two.phase.commit.enable=true"
        raise
    finally:
        producer.close()
    return None


def log_choice(wanted: Mode, used: Mode) -> None:
    """Log the mode that ``auto`` chose: one line for a query, by the task that finds it new."""
    if wanted is not Mode.AUTO:
        return
    if used is Mode.TWO_PHASE:
        LOG.warning("exactlyOnce=auto: 2pc, one decision for each epoch")
    else:
        LOG.warning("exactlyOnce=auto: ledger, as there is no two-phase commit here: epochs are not decided as a whole")
