"""A tab that is watched: whatever a page does that none of ours may do is noted, and fails the test at its end.

Noted are scripts' errors, messages of the browser's console (a refusal by the Content-Security-Policy is one), dialogs,
further windows, downloads that nobody asked for, and requests to any other host than the console's.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

from tests.waiting import HANG_S, LABEL_S

AXE: Final = Path(__file__).parent / "vendor" / "axe.min.js"
_AXE_OPTIONS: Final = {"resultTypes": ["violations"]}
_OF_COLOURS: Final = {**_AXE_OPTIONS, "runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
"""The rules that can tell light from dark; all others look at what is there, not at how it is drawn."""
_OF_AN_OUTAGE: Final = ("error: htmx:sendError", "error: htmx:afterRequest", "error: [object Event]")
"""Messages of htmx about a console that does not answer."""
_EXPECTED: Final = "Failed to load resource"
"""The browser's own line about a status of 400 and above, or a connection that was refused: pages show those."""


class Tab:
    """A page of a context of its own, at an origin."""

    def __init__(self, browser: Browser, origin: str, **settings: Any) -> None:
        self.origin = origin
        self.context: BrowserContext = browser.new_context(base_url=origin, **settings)
        self.context.set_default_timeout(LABEL_S * 1000)
        self.context.set_default_navigation_timeout(HANG_S * 1000)
        self.noted: list[str] = []
        self.has_outage = False
        """True if the console is stopped while the tab is open."""
        self.page: Page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.noted.append(f"error: {error}"))
        self.page.on("console", self._said)
        self.page.on("dialog", self._asked)
        self.page.on("popup", lambda popup: self.noted.append(f"window: {popup.url}"))
        self.page.on("request", self._requested)

    def check(self) -> None:
        """Fail if anything was noted."""
        noted = [item for item in self.noted if not (self.has_outage and item.startswith(_OF_AN_OUTAGE))]
        assert not noted, noted

    def close(self) -> None:
        """Close the tab."""
        self.context.close()

    def axe(self, *, only_colours: bool = False) -> list[str]:
        """Problems that axe finds on the page as it is now, one line an element."""
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(AXE.read_text("utf-8"))
        evaluate = self.page.evaluate(
            "options => axe.run(document, options)", _OF_COLOURS if only_colours else _AXE_OPTIONS
        )
        return [
            f"{item['id']} ({item['impact']}): {node['html'][:200]}: {node['failureSummary']}"
            for item in evaluate["violations"]
            for node in item["nodes"]
        ]

    def overflow(self) -> list[str]:
        """The elements that make the page wider than the window; empty when only boxes of their own scroll."""
        evaluate: list[str] = self.page.evaluate(
            """() => {
              const width = document.documentElement.clientWidth;
              if (document.documentElement.scrollWidth <= width) return [];
              const wide = [...document.querySelectorAll("body *")]
                .filter((one) => one.getBoundingClientRect().right > width + 1 && !one.closest("table :not(.unseen)"))
                .map((one) => one.outerHTML.slice(0, 120));
              return [`${document.documentElement.scrollWidth} px of ${width}`, ...wide.slice(0, 20)];
            }"""
        )
        return evaluate

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_EXPECTED):
            self.noted.append(f"{message.type}: {message.text}")

    def _asked(self, dialog: Dialog) -> None:
        self.noted.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((self.origin, "blob:", "data:")):
            self.noted.append(f"request: {request.url}")


Open = Callable[..., Tab]
"""Opens a tab; takes the settings of a Playwright context."""
