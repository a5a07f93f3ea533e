"""The open transactions of a directory's logs, and their transactional ids."""
