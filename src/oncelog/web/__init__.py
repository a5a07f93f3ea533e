"""HTTP servers over uvicorn: listening, connections with time-outs, certificates, and logins of requests."""
