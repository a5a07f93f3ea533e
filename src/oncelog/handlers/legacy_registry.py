"""The versions that ``oncelog.legacy.protocol`` adds to ``registry``; the only entry to ``legacy.requests``."""

from __future__ import annotations

from typing import Final

from oncelog.handlers.api import Api
from oncelog.handlers.api import Operation as Op
from oncelog.handlers.api import ResourceType as Res

LEGACY_APIS: Final = (
    Api(0, "Produce", 0, 2, "oncelog.legacy.requests.produce", Op.WRITE, Res.TOPIC),
    Api(1, "Fetch", 0, 3, "oncelog.legacy.requests.fetch", Op.READ, Res.TOPIC),
    Api(2, "ListOffsets", 0, 0, "oncelog.legacy.requests.list_offsets", Op.DESCRIBE, Res.TOPIC),
    Api(8, "OffsetCommit", 0, 1, "oncelog.legacy.requests.zookeeper_offsets:commit", Op.READ, Res.GROUP),
    Api(9, "OffsetFetch", 0, 0, "oncelog.legacy.requests.zookeeper_offsets:fetch", Op.DESCRIBE, Res.GROUP),
)

LEGACY_BY_KEY: Final = {api.key: api for api in LEGACY_APIS}
