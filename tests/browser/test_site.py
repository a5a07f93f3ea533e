"""The documentation's site in a browser: for readers, on phones, in the dark; its search without a server."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.waiting import HANG_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.watch import Open, Tab

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.slow]

PAGES = (
    "index",
    "explain",
    "console",
    "testing-your-application",
    "internals/storage",
    "reference/commands/topic",
    "reference/python/oncelog.testing",
    "reference/errors",
    "search",
)
"""Pages that between them have everything that pages are made of."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it."""
    directory = tmp_path_factory.mktemp("site") / "docs"
    command = [sys.executable, "-m", "codegen.site", "--to", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, f"make docs has to succeed; it installs what the site needs\n{done.stderr}"
    return directory


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """No lines on stderr."""


@pytest.fixture(scope="module")
def origin(site: Path) -> Iterator[str]:
    """The address of a server of the site: axe reads style sheets, which a browser refuses to scripts of files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def reader(browser: Browser, origin: str) -> Iterator[Tab]:
    """One tab for all pages."""
    from tests.browser.watch import Tab

    tab = Tab(browser, origin)
    yield tab
    tab.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_fit_for_readers_and_phones(reader: Tab, name: str) -> None:
    page = reader.page
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="light")
    page.goto(f"{reader.origin}/{name}.html")
    wrong = [f"axe, light: {line}" for line in reader.axe()]
    page.emulate_media(color_scheme="dark")
    wrong += [f"axe, dark: {line}" for line in reader.axe(only_colours=True)]
    page.set_viewport_size({"width": 375, "height": 667})
    wrong += [f"scrolls sideways on a phone: {line}" for line in reader.overflow()]
    reader.check()
    assert not wrong, "\n".join(wrong)


def test_a_search_finds_a_page_without_a_server(tabs: Open, site: Path) -> None:
    reader = tabs(site.as_uri())
    page = reader.page
    page.goto(f"{reader.origin}/search.html?q=sub_second_elections_xyz")
    page.get_by_text("did not match any documents").wait_for()
    page.goto(f"{reader.origin}/search.html?q=hanging+transaction")
    page.locator("#search-results a", has_text="When a read_committed consumer is stuck").first.wait_for()


def test_programs_find_the_pages_as_markdown(site: Path) -> None:
    links = [line.partition("](")[2].partition(")")[0] for line in (site / "llms.txt").read_text("utf-8").splitlines()]
    pages = [link for link in links if link]
    assert "explain.md" in pages
    assert [link for link in pages if not (site / link).is_file()] == []
