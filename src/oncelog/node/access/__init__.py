"""Access control: who may do what, and the logs of what was denied, changed or ended by an administrator."""
