"""Plots as values and as SVG by hand: axes, lines, columns, drawings. No library, no script, nothing fetched."""
