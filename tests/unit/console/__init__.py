"""Tests of the console, page by page, without a browser."""
