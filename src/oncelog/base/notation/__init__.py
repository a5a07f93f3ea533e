"""How values are written: JSON, properties files, words of a shell, lines of a log, text that is safe to show."""
