"""A private certificate authority, and the files of a secured broker and its clients: ``oncelog security``, and the
in-process broker's certificates."""
