"""Options of ``oncelog consume --share``, and those that exclude them."""

from __future__ import annotations

import pytest
import typer

from oncelog.cli.records.consume_share import ShareOptions

NONE = {"--from": False, "--group": False}


@pytest.mark.parametrize("options", [ShareOptions(), ShareOptions("g"), ShareOptions("g", reject=True)])
def test_options_that_go_together(options: ShareOptions) -> None:
    options.require_alone(NONE)


@pytest.mark.parametrize(
    ("options", "others", "reason"),
    [
        (ShareOptions(release=True), NONE, "name it with --share"),
        (ShareOptions("g", release=True, reject=True), NONE, "--release or --reject, not both"),
        (ShareOptions("g"), {"--from": True, "--group": True}, "--from, --group do not go with --share"),
        (ShareOptions("g"), {"--from": True}, "--from does not go with --share"),
    ],
)
def test_options_that_exclude_each_other(options: ShareOptions, others: dict[str, bool], reason: str) -> None:
    with pytest.raises(typer.BadParameter, match=reason):
        options.require_alone(others)
