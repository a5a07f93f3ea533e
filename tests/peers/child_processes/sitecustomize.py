"""Read by every Python that the interop tests start over a cut network, where brokers are put behind proxies, and by
those of a run on a plain platform.

Most of them are no brokers: nothing is imported before the server is.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

_SERVER = "oncelog.runtime.server"


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        from tests.peers.cut_network import install, requested

        network = requested()
        if network is not None:
            install(network)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _SERVER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


if os.environ.get("ONCELOG_TEST_PLATFORM"):
    from tests.peers.plain_platform import install as install_platform

    install_platform()
sys.meta_path.insert(0, _Finder())
