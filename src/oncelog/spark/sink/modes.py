"""Finds the mode of ``exactlyOnce`` that a cluster supports, by a probe: InitProducerId 6 with Enable2Pc."""

from __future__ import annotations

import logging
from typing import Final

from oncelog.base.errors import ErrorCode
from oncelog.client.blocking import Client, TransactionalProducer, TransactionSettings
from oncelog.client.errors import BrokerRefused, UnsupportedRequest
from oncelog.spark.session.errors import SinkError
from oncelog.spark.sink.options import Mode
from oncelog.spark.sink.two_phase.protocol import driver_id

# The probe's id. It has the prefix of the sink's ids, so that access rules cover it; no query has this name.
PROBE_ID: Final = driver_id("probe:")
LOG: Final = logging.getLogger("oncelog.spark.sink")
_NOT_CONFIGURED: Final = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)


def choose(client: Client, requested: Mode) -> Mode:
    """The mode to use. Raises SinkError if two-phase commit is requested and the cluster lacks it."""
    if requested in (Mode.OFF, Mode.LEDGER):
        return requested
    missing = two_phase_problem(client)
    if missing is None:
        return Mode.TWO_PHASE
    if requested is Mode.TWO_PHASE:
        raise SinkError(f"exactlyOnce=2pc: {missing}; exactlyOnce=ledger does without it")
    LOG.debug("no two-phase commit: %s", missing)
    return Mode.LEDGER


def two_phase_problem(client: Client) -> str | None:
    """The reason why the cluster has no two-phase commit; None if it does."""
    producer = TransactionalProducer(client, TransactionSettings(PROBE_ID, two_phase=True))
    try:
        # The probe opens no transaction, so there is nothing to abort.
        producer.initialize()
    except UnsupportedRequest:
        return "the cluster has no InitProducerId 6 (in Apache Kafka it needs the unstable APIs to be enabled)"
    except BrokerRefused as error:
        if error.code in _NOT_CONFIGURED:
            return "the brokers are not configured with transaction.two.phase.commit.enable=true"
        raise
    finally:
        producer.close()
    return None


def log_choice(requested: Mode, used: Mode) -> None:
    """Log the mode that ``auto`` chose: one line per query, from the task that finds the query new."""
    if requested is not Mode.AUTO:
        return
    if used is Mode.TWO_PHASE:
        LOG.warning("exactlyOnce=auto: 2pc, one decision for each epoch")
    else:
        LOG.warning(
            "exactlyOnce=auto: ledger, because there is no two-phase commit: an epoch is not decided as a whole"
        )
