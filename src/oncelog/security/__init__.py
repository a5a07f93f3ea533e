"""A private certificate authority, and the files of a secured broker and its clients.

Used by ``oncelog security`` and for the certificates of the in-process broker.
"""
