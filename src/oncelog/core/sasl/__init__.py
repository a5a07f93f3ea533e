"""Authentication of clients: the server's side of SASL, one pure machine for each mechanism."""
