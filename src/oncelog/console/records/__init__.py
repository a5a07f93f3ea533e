"""Records with the states of their transactions: read, searched, decoded, written as JSON."""
