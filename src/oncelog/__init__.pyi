from oncelog.arrow.topic_reader import read_arrow as read_arrow

__version__: str
