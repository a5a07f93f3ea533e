"""One module per API: its errors, its authorisation, one call into the core. ``registry`` lists them all."""
