"""``oncelog txn commit``: commits the transaction that a dead job counts on."""

from __future__ import annotations

from typing import Annotated

import typer

from oncelog.cli.support.options import AdminOptions
from oncelog.cli.txn.common import AuditLog, Yes
from oncelog.cli.txn.stored import StoredOptions, end_stored_transactions


def commit(
    stored: StoredOptions = StoredOptions(),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, change nothing.")] = False,
    yes: Yes = False,
    audit_log: AuditLog = None,
    cluster: AdminOptions = AdminOptions(),
) -> None:
    """Commit the transaction of a job that died.

    A job that prepares a transaction, stores its identity in a checkpoint and dies before it commits leaves data that
    the checkpoint counts on. When the transaction times out, it is aborted and the data is lost. This commits it
    through its coordinator, by the stored identity. First it shows what became of the transaction, its records and
    which consumers it sets free, and asks. A transaction that is not certainly the stored one is refused.

    \b
    Examples:
      oncelog txn commit --transactional-id sink-0-1 --producer-id 4711 --epoch 3 --dry-run
      oncelog txn commit --transactional-id sink-0-1 --producer-id 4711 --epoch 3 --stored-at 2026-11-27T12:00:00Z
      oncelog txn commit --from-flink-checkpoint /checkpoints/3f2a…/chk-42
      oncelog txn commit --from-spark-checkpoint /data/checkpoints/out --yes --json
    """
    end_stored_transactions(stored, cluster, commit=True, dry_run=dry_run, yes=yes, audit_log=audit_log)
