"""The files of each released version, and its broker: later versions start on them, serve them, and go back."""
