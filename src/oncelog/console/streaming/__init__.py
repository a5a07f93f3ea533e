"""Streams from a worker thread to a browser: searches and live tails."""
