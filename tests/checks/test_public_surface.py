"""Names, signatures, commands and metrics that users rely on change only together with their record."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest

from oncelog.cli.txn import prometheus_exporter
from oncelog.runtime.metrics import broker_metrics, cluster_metrics, share_metrics, transaction_samples
from tests.checks.public_surface import COMMAND, MODULES, RECORD, ROOT, documented_metrics, signature, surface

PAGE: Final = ROOT / "docs" / "public-surface.md"
OF_MIRRORS: Final = "oncelog_mirror_"


@pytest.mark.slow
def test_the_public_surface_is_the_recorded_one() -> None:
    recorded, now = RECORD.read_text("utf-8").splitlines(), surface().splitlines()
    changes = list(difflib.unified_diff(recorded, now, "recorded", "now", lineterm="", n=1))
    assert not changes, "\n".join([f"what users rely on has changed; if that is meant: {COMMAND}", *changes])


def test_the_page_names_every_public_module() -> None:
    assert set(re.findall(r"`(oncelog(?:\.\w+)*)`", PAGE.read_text("utf-8"))) == set(MODULES)


def test_code_and_documentation_name_the_same_metrics() -> None:
    modules = (broker_metrics, cluster_metrics, share_metrics, transaction_samples, prometheus_exporter)
    sources = [inspect.getsource(module) for module in modules]
    named = {name for source in sources for name in re.findall(r'"(oncelog_\w+)"', source)}
    documented = {name for name in documented_metrics() if not name.startswith(OF_MIRRORS)}
    assert {name.removesuffix("_total") for name in named} == {name.removesuffix("_total") for name in documented}


def _plain(client: int, names: Sequence[str], *, wait: bool = True) -> Iterator[str]:
    raise NotImplementedError


def _shown_otherwise(client: object, /, *arguments: object) -> object:
    raise NotImplementedError


_shown_otherwise.__signature__ = inspect.signature(_plain)  # type: ignore[attr-defined]  # as functions with two forms do


@pytest.mark.parametrize("function", [_plain, _shown_otherwise])
def test_a_signature_is_written_as_its_source_has_it(function: Callable[..., object]) -> None:
    assert signature(function) == "(client: int, names: Sequence[str], *, wait: bool = True) -> Iterator[str]"
