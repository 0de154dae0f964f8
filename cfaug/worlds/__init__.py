"""Worlds, a folder each: data of known truth, or drawn by others (``cfaug.core.worlds``)."""
