"""The pure parts of mirrors."""
