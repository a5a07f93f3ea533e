"""The schema registry of a test's broker: the one of ``oncelog registry serve``, in a thread of this process."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from oncelog.client.errors import ClientError
from oncelog.testing.loop import LoopThread
from oncelog.testing.port import LOOPBACK, ReservedPort

if TYPE_CHECKING:
    from oncelog.registry.serving import RegistryServer

_TIMEOUT_S: Final = 30.0


class RegistryThread:
    """A registry on a port that stays reserved until :meth:`release`."""

    def __init__(self) -> None:
        try:
            import oncelog.registry.serving  # noqa: F401  # refused now instead of in the thread
        except ModuleNotFoundError as missing:
            raise ImportError(f"registry=True needs {missing.name}: pip install 'oncelog[registry]'") from None
        self._port: ReservedPort | None = None
        self._loop: LoopThread | None = None
        self._serving: asyncio.Task[None] | None = None
        self._server: RegistryServer | None = None

    @property
    def url(self) -> str:
        if self._port is None:
            raise RuntimeError("the registry has not been started: call start(), or use a with block")
        return f"http://{LOOPBACK}:{self._port.number}"

    def start(self, bootstrap: str, client: Mapping[str, str]) -> None:
        """Start the registry unless it runs, and wait until it serves. Raises ClientError."""
        if self._loop is not None:
            return
        if self._port is None:
            self._port = ReservedPort()
        self._loop = LoopThread("oncelog-registry")
        listening: concurrent.futures.Future[None] = concurrent.futures.Future()
        try:
            self._loop.call(self._begin(bootstrap, client, listening), _TIMEOUT_S)
            listening.result(_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    async def _begin(
        self, bootstrap: str, client: Mapping[str, str], listening: concurrent.futures.Future[None]
    ) -> None:
        from oncelog.registry.library_formats import LibraryFormats
        from oncelog.registry.serving import RegistryServer, Settings

        assert self._port is not None
        settings = Settings(bootstrap, client, host=LOOPBACK, port=self._port.number)
        server = self._server = RegistryServer(settings, LibraryFormats())

        def ended(task: asyncio.Task[None]) -> None:
            if not listening.done():
                error = None if task.cancelled() else task.exception()
                listening.set_exception(error or ClientError("the registry ended before it was listening; start again"))

        serving = server.serve(lambda: listening.set_result(None), [self._port.socket()])
        self._serving = asyncio.get_running_loop().create_task(serving)
        self._serving.add_done_callback(ended)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call(self._finish(), _TIMEOUT_S)
            self._loop.end()
        self._loop = None

    async def _finish(self) -> None:
        if self._serving is None or self._server is None:
            return
        self._server.end()
        if self._server.server is None:
            self._serving.cancel()
        await asyncio.wait([self._serving], timeout=_TIMEOUT_S)

    def release(self) -> None:
        self.stop()
        if self._port is not None:
            self._port.release()
        self._port = None
