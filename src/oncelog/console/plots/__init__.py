"""Plots as values that templates draw as SVG: no script, no style of their own, colours by class for light and dark."""
