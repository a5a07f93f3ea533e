"""Builds the documentation site: `python -m codegen.site`, which `make docs` runs.

The Markdown files in ``docs/`` are its sources. ``staging`` copies them with links that hold within the site, and
``reference`` adds pages that are generated from the code: commands, Python API, configuration keys, errors and causes.
Sphinx then builds HTML from them, warnings are errors, and ``links`` checks all links and anchors of the result.
"""
