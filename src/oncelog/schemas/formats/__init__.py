"""Schemas of the three formats, parsed: their canonical and normalised text, names, and what decoders need."""
