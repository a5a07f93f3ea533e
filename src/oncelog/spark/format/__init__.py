"""Implements ``format("oncelog")``: the data source that Spark calls, and transactions of several writes."""
