"""The audit's result as one HTML page."""
