"""One segment: its batch headers as columns, and what they, the indexes and the internal topics say as rows."""
