"""Copies the schemas of the source's registry before the records that need them, on request (`--schemas`).

The copy itself is the registry's (``oncelog.registry.mirroring``), behind the protocol ``SchemaCopy``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from oncelog.base.errors import ErrorCode
from oncelog.client.aio.client import AsyncClient
from oncelog.mirror.progress import Progress, RefusalRow
from oncelog.mirror.settings import SCHEMAS_TOPIC

LOG: Final = logging.getLogger("oncelog.mirror")
_MOST_LOGGED: Final = 20


class SchemaConflict(Protocol):
    """A version of a subject of the target that is not copied."""

    @property
    def subject(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def reason(self) -> str: ...


class SchemaCopy(Protocol):
    async def copy(self) -> Sequence[SchemaConflict]:
        """Copy what the source has registered until now. Returns everything that is not copied. Raises ClientError."""

    async def close(self) -> None: ...


NewSchemaCopy = Callable[[AsyncClient, AsyncClient], SchemaCopy]
"""Makes a copy from the first client's cluster to the second's."""


class SchemaSync:
    def __init__(self, copy: SchemaCopy, progress: Progress) -> None:
        self._copy = copy
        self._progress = progress

    async def sync(self) -> None:
        """Copy schemas, and report conflicts as refusals. Raises ClientError."""
        conflicts = await self._copy.copy()
        before = set(self._progress.schema_refusals)
        self._progress.schema_refusals = [_row(self._progress.alias, conflict) for conflict in conflicts]
        new = [row for row in self._progress.schema_refusals if row not in before]
        for row in new[:_MOST_LOGGED]:
            LOG.warning("%s", row.text)
        if len(new) > _MOST_LOGGED:
            LOG.warning("%d more schemas of %s are not copied", len(new) - _MOST_LOGGED, self._progress.alias)

    async def close(self) -> None:
        await self._copy.close()


def _row(alias: str, conflict: SchemaConflict) -> RefusalRow:
    text = (
        f"version {conflict.version} of {conflict.subject} is not copied from {alias}: {conflict.reason}; delete the "
        "target's for good, or mirror with --naming prefix, which gives each source ids of its own. Everything else is "
        "copied, and a running mirror tries this again by itself"
    )
    code = int(ErrorCode.INVALID_RECORD)
    return RefusalRow(alias, SCHEMAS_TOPIC, None, None, SCHEMAS_TOPIC, code, text)
