"""Options that commands share, what they print, and how they fail."""
