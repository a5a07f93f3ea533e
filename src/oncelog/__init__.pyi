from oncelog.arrow.reader import read_arrow as read_arrow

__version__: str
