"""``oncelog security``: files of a secured broker and its clients, and users with passwords."""
