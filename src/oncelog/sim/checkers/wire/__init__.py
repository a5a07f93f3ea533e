"""Rules for requests and responses on the wire, numbered W1, W2, …; ``observer`` combines them."""
