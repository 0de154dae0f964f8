"""Papers: the methods, tables and settings of one paper in a folder each."""
