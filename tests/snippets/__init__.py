"""Every example of README and docs is run: its shell commands, transcripts and programs, page by page, in their order.

A page is played on a stage (``stages``), which has the brokers and topics that the page takes for granted. An example
that is not run here says so in a comment above it: ``<!-- not run: REASON -->``, or ``<!-- run by: tests/FILE.py -->``.
"""
