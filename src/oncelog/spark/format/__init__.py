"""``format("oncelog")`` as Spark calls it: a data source above source and sink, and transactions of several writes."""
