"""Seeds: what they draw, how one is run and judged, and how a failing one is shortened or replayed."""
