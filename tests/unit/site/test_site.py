"""The parts of the documentation's site that need no Sphinx: links, the menu, generated pages, llms.txt."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from codegen.site import links, llms, pages
from codegen.site.pages import REPOSITORY, ROOT, menu, with_site_links
from codegen.site.reference import causes, errors, markdown
from codegen.site.reference.commands import pages as command_pages

SOURCE = ROOT / "docs" / "internals" / "storage.md"
PLACE = PurePosixPath("internals/storage.md")


def test_links_lead_within_the_site_or_to_the_repository() -> None:
    text = "[a](../cluster.md#status) [b](../../README.md) [c](../../CONTRIBUTING.md) [d](../../tests/peers) [e](#x)"
    peers = f"{REPOSITORY}/tree/main/tests/peers"
    assert with_site_links(text, SOURCE, PLACE) == (
        f"[a](../cluster.md#status) [b](../index.md) [c](../contributing.md) [d]({peers}) [e](#x)"
    )


def test_a_block_of_code_stays_as_it_is() -> None:
    text = "```python\nx[0](../../README.md)\n```\n[a](../../README.md)"
    assert with_site_links(text, SOURCE, PLACE) == "```python\nx[0](../../README.md)\n```\n[a](../index.md)"


def test_every_page_is_in_the_menu() -> None:
    docs = ROOT / "docs"
    index = (docs / "index.md").read_text("utf-8")
    linked = {place for part in menu(with_site_links(index, docs / "index.md", pages.INDEX)) for place in part.pages}
    pictured = {place for place in pages.sources() if place.suffix == ".md" and place.parts[0] != "adr"}
    assert pictured - linked == {pages.INDEX}


def test_broken_links_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top">a</h1><a href="#top"></a><a href="b.html#none"></a><a href="c.html"></a>'
        '<a href="https://example.org/"></a><script src="https://example.org/x.js"></script>',
        "utf-8",
    )
    (tmp_path / "b.html").write_text('<a name="here"></a><a href="a.html#top"></a>', "utf-8")
    documents = links.documents(tmp_path)
    assert [line.split(": ")[1:] for line in links.broken(documents)] == [
        ["b.html#none", "no such anchor on that page"],
        ["c.html", "no such file in the site"],
        ["https://example.org/x.js", "is loaded from another host"],
    ]
    assert links.external(documents) == ["https://example.org/"]


def test_a_summary_is_the_first_sentence_without_links() -> None:
    assert llms.summary("# T\n\n```sh\nx\n```\n\nReads a\n[topic](b.md) of 0.7. More.\n") == "Reads a topic of 0.7."


def test_every_cause_of_explain_has_a_meaning() -> None:
    assert "## held-by-transaction\n\na transaction blocks it" in causes.page()


@pytest.mark.slow  # all handlers are imported
def test_an_error_names_its_meaning_and_its_apis() -> None:
    row = next(line for line in errors.page().splitlines() if "`UNKNOWN_TOPIC_OR_PARTITION`" in line)
    assert "| 3 | no such topic or partition |" in row
    assert "[Fetch](../COMPATIBILITY.md#fetch)" in row


def test_a_command_has_its_options_and_examples() -> None:
    page = dict(command_pages())["topic"]
    assert "\n## oncelog topic create\n" in page
    assert "```sh\noncelog topic create flights --partitions 6\n" in page
    assert "| `-p, --partitions COUNT` | Default: the broker's. \\[x>=1] |" in page


def test_texts_of_the_code_are_neither_html_nor_emphasis() -> None:
    assert markdown.of_docstring("Takes <a> *args and ``x[0]``, see :meth:`~a.b`.") == (
        "Takes \\<a> \\*args and ``x[0]``, see `a.b`."
    )
    assert markdown.of_html("Use <code>a</code>.<p>See <a href='#x'>b</a> &amp; c") == "Use `a`. See  b  & c"
