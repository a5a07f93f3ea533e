"""Exports of ``oncelog.admin.transactions`` are there, and are not loaded before they are used."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from importlib.util import resolve_name
from typing import Any

import pytest

from oncelog.admin import transactions
from oncelog.admin.transactions.explanations import Chain
from oncelog.admin.transactions.unique_ids import ListedTransaction


@pytest.mark.parametrize("name", transactions.__all__)
def test_every_name_is_where_the_package_says(name: str) -> None:
    result = getattr(transactions, name)
    assert result.__name__ == name
    assert result.__module__ == resolve_name(transactions._ELSEWHERE[name], transactions.__name__)


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        transactions.nothing  # noqa: B018  # the attribute's absence is what is tested


@pytest.mark.slow
def test_the_package_alone_loads_none_of_its_modules() -> None:
    script = "import sys, oncelog.admin.transactions; print([m for m in sys.modules if 'transactions.' in m])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("row_type", "names"),
    [
        (
            transactions.HangingRow,
            "topic partition producer_id producer_epoch start_offset age_ms transactional_id coordinator verdict "
            "reason records_behind",
        ),
        (
            transactions.ProducerRow,
            "topic partition leader producer_id producer_epoch last_sequence last_timestamp_ms coordinator_epoch "
            "start_offset transactional_id found",
        ),
        (
            transactions.TransactionRow,
            "transactional_id coordinator state producer_id producer_epoch timeout_ms start_ms partitions "
            "client_id client_host",
        ),
        (transactions.Explanation, "subject chains transactions unanswered"),
        (
            Chain,
            "about sentences advice commands verdict clears_at_ms is_overdue partition producer_id groups lost_marker",
        ),
        (ListedTransaction, "transactional_id producer_id state coordinator"),
    ],
)
def test_fields_of_rows_are_those_of_the_json_output(row_type: type[Any], names: str) -> None:
    assert [field.name for field in fields(row_type)] == names.split()
