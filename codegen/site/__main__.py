"""``python -m codegen.site``: builds the documentation site into ``build/docs``; warnings are errors."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from sphinx.cmd.build import build_main

from codegen.site import accessibility, links, llms
from codegen.site.pages import ROOT
from codegen.site.staging import stage

_EXTERNAL: Final = "external-links.txt"


def main() -> int:
    """Build the site. Returns 1 after a warning of Sphinx or for a broken link."""
    parser = argparse.ArgumentParser(prog="python -m codegen.site", description="Builds the documentation site.")
    parser.add_argument("--to", type=Path, default=ROOT / "build" / "docs", help="the site's directory")
    site: Path = parser.parse_args().to
    staged = site.with_name(f"{site.name}-source")
    parts = stage(staged)
    options = ["-q", "-W", "--keep-going", "-j", "2", "-E", "-b", "html", "-c", str(Path(__file__).parent)]
    if build_main([*options, "-d", str(site.with_name(f"{site.name}-trees")), str(staged), str(site)]):
        return 1
    accessibility.improve(site)
    llms.write(staged, site, parts)
    pages = links.documents(site)
    problems = list(links.broken(pages))
    print(*problems, sep="\n", file=sys.stderr, end="\n" if problems else "")
    others = links.external(pages)
    (site / _EXTERNAL).write_text("".join(f"{link}\n" for link in others), "utf-8")
    print(f"{site / 'index.html'}: {len(pages)} pages; {len(others)} links to other hosts are in {_EXTERNAL}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
