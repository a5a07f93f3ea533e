"""Authorization: which list decides, and what it says. Pure; see ``authorizer``."""
