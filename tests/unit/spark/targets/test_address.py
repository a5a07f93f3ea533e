"""Addresses of tables: what each may be, and what is said of the others."""

from __future__ import annotations

import pytest

from oncelog.spark.session.errors import OptionError
from oncelog.spark.table.directory import TableError, reject_non_directory
from oncelog.spark.targets.address import parse_address


def test_addresses_say_which_table() -> None:
    assert parse_address("./flights", None, {}) is None
    delta = parse_address("delta:s3://lake/flights/", None, {})
    assert delta is not None
    assert (delta.kind, delta.place, delta.is_directory) == ("delta", "s3://lake/flights", False)
    assert str(delta.quarantine) == "delta:s3://lake/flights-quarantine"
    local = parse_address("iceberg:./flights", None, {})
    assert local is not None
    assert local.is_directory
    cataloged = parse_address("iceberg:shop.orders", "prod", {"uri": "x"})
    assert cataloged is not None
    assert (cataloged.catalog, str(cataloged.quarantine)) == ("prod", "iceberg:shop.orders_quarantine")


@pytest.mark.parametrize("place", ["./shop.orders", "/data/shop.orders", "../orders", "orders", ".", ".orders"])
def test_directories_of_iceberg_may_have_dots_in_their_names(place: str) -> None:
    address = parse_address(f"iceberg:{place}", None, {})
    assert address is not None
    assert (address.place, address.is_directory) == (place, True)


def test_options_are_never_printed() -> None:
    address = parse_address("delta:s3://lake/t", None, {"aws_secret_access_key": "hunter2"})
    assert "hunter2" not in f"{address!r} {address}"


def test_a_plain_endpoint_may_be_spoken_to_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)

    def options(given: dict[str, str]) -> object:
        address = parse_address("delta:s3://lake/t", None, given)
        return None if address is None else address.options.get("aws_allow_http")

    assert options({}) is None
    assert options({"AWS_ENDPOINT_URL": "https://store"}) is None
    assert options({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}) == "true"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    assert options({}) == "true"


@pytest.mark.parametrize(
    ("to", "catalog", "options", "said"),
    [
        ("delta:", None, {}, "names no table"),
        ("delta:t", "prod", {}, "a catalog is only for tables at iceberg:"),
        ("iceberg:s3://lake/t", None, {}, "name it with --catalog and write the table as iceberg:NAMESPACE.TABLE"),
        ("iceberg:shop.orders", None, {}, "name the catalog with --catalog .* write iceberg:./shop.orders"),
        ("iceberg:eu.shop.orders", None, {"uri": "http://catalog"}, "is a table of a catalog"),
        ("iceberg:orders", "prod", {}, "must be written iceberg:NAMESPACE.TABLE"),
        ("./flights", None, {"a": "b"}, "are only for tables at delta:… and iceberg:…"),
    ],
)
def test_what_an_address_cannot_be(to: str, catalog: str | None, options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_address(to, catalog, options)


@pytest.mark.parametrize("to", ["s3://b/t", "S3A://b/t", "s3:/b/t", "gs://b/t", "abfss://c@a/t", "az://c/t"])
def test_parquet_is_refused_where_nothing_is_renamed(to: str) -> None:
    with pytest.raises(TableError, match="is an object store: load into delta:ADDRESS or iceberg:"):
        reject_non_directory(to)


@pytest.mark.parametrize("to", ["detla:flights", "lake:flights", "./s3:x", "file:///data/flights"])
def test_what_spark_would_take_for_an_address_is_no_directory(to: str) -> None:
    with pytest.raises(TableError, match="write delta:… or iceberg:… for these table formats, or the directory's"):
        reject_non_directory(to)


@pytest.mark.parametrize("to", ["s3", "/data/s3:x", "/data/gs", "azure/flights", "lake/a:b"])
def test_directories_are_none(to: str) -> None:
    reject_non_directory(to)
