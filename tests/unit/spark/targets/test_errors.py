"""Errors of a store or a catalog that cannot be reached: one line each, with the cause and without secrets."""

from __future__ import annotations

import pytest
from deltalake.exceptions import DeltaError

from oncelog.spark.table.directory import TableError
from oncelog.spark.targets import delta
from oncelog.spark.targets.address import parse_address
from oncelog.spark.targets.format_table import open_target

TREE = """Kernel error -> Generic MicrosoftAzure error
          \x1b[31m↳\x1b[0m Error performing GET https://lake/t/_delta_log?sv=1&sig=hunter2 in 5.2s, after 10 retries
           \x1b[31m↳\x1b[0m Connection refused (os error 111)
"""


def said_of(to: str, catalog: str | None, **options: str) -> str:
    address = parse_address(to, catalog, options)
    assert address is not None
    with pytest.raises(TableError) as failure:
        open_target(address).columns()
    return str(failure.value)


def test_a_store_that_refuses_is_told_with_the_cause() -> None:
    keys = {"aws_access_key_id": "me", "aws_secret_access_key": "hunter2", "aws_region": "eu-west-1"}
    message = said_of("delta:s3://lake/t", None, AWS_ENDPOINT_URL="http://127.0.0.1:9", max_retries="0", **keys)
    assert message.startswith("delta:s3://lake/t cannot be read: ")
    assert "Connection refused" in message
    assert "\n" not in message
    assert "\x1b" not in message
    assert "hunter2" not in message


def test_delta_causes_are_one_line_without_signatures() -> None:
    assert delta.one_line(DeltaError(TREE)) == (
        "Kernel error -> Generic MicrosoftAzure error: Error performing GET https://lake/t/_delta_log in 5.2s, after "
        "10 retries: Connection refused (os error 111)"
    )
    assert delta.one_line(DeltaError("")) == "DeltaError"


def test_a_catalog_that_pyiceberg_does_not_know_is_told_with_the_ways_to_describe_it() -> None:
    message = said_of("iceberg:shop.orders", "nowhere")
    assert "no usable settings for the catalog 'nowhere'" in message
    assert "PYICEBERG_CATALOG__NOWHERE__URI" in message
    assert "--storage-option uri=" in message
    assert "hunter2" not in said_of("iceberg:shop.orders", "prod", uri="mysql://me:hunter2@host/db")
