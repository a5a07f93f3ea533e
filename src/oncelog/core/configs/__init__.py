"""Configuration keys as literal tables, and typed views of the values given for them."""
