"""Worlds: data with known truth, a folder each (``cfaug.core.worlds``)."""
