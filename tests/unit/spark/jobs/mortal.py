"""Loads that die at a point chosen by the test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from typing import Any

import pytest


class Died(BaseException):
    """The process."""


class Mortal:
    """Lets a load die before or after its n-th durable action; from then on no action has an effect."""

    def __init__(self, patch: pytest.MonkeyPatch, dies_at: int, actions: Iterable[tuple[Any, str]]) -> None:
        self.dies_at, self.actions, self.dead = dies_at, 0, False
        for owner, name in actions:
            patch.setattr(owner, name, self._mortal(getattr(owner, name)))
        patch.setattr(shutil, "rmtree", self._mortal(shutil.rmtree, counts=False))

    def _mortal(self, action: Callable[..., Any], *, counts: bool = True) -> Callable[..., Any]:
        def acting(*arguments: Any, **named: Any) -> Any:
            self._step(counts)
            result = action(*arguments, **named)
            self._step(counts)
            return result

        return acting

    def _step(self, counts: bool) -> None:
        if counts and not self.dead:
            self.dead = self.actions == self.dies_at
            self.actions += 1
        if self.dead:
            raise Died
