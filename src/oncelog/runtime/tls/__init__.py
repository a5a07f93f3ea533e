"""TLS: key and trust stores, contexts that follow their files, handshakes on workers, encrypted connections."""
