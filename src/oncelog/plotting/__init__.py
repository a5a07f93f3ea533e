"""Plots as values and as hand-made SVG: axes, lines, columns, drawings. Without libraries, scripts or downloads."""
