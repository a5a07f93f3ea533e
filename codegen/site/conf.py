"""Sphinx's configuration of the site. Nothing of it is fetched from another host when a page is read."""

from oncelog import __version__

project = "oncelog"
author = "The oncelog developers"
copyright = "The oncelog developers, Apache-2.0. Apache Kafka is a trademark of the Apache Software Foundation."  # noqa: A001 - Sphinx's name
release = version = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 4
suppress_warnings = ["ref.python"]  # a class that both clients export is one target too many for its name
python_maximum_signature_line_length = 100
html_theme = "furo"
html_title = f"oncelog {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # it would be fetched, which a browser refuses for pages that are files
