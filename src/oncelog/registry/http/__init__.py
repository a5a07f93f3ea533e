"""The registry's HTTP interface: its routes, permissions, and the documents that it answers."""
