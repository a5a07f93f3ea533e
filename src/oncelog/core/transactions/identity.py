"""A producer's id and epoch."""

from __future__ import annotations

from typing import Final, NamedTuple

from oncelog.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId


class Identity(NamedTuple):
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


NO_IDENTITY: Final = Identity()
