"""Options, output and failures that commands share."""
