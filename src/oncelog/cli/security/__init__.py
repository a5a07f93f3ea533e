"""``oncelog security``: the files of a secured broker and its clients, and the users that log in by a password."""
