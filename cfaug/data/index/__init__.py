"""An index over any source: one row per image-text pair, memory-mapped and cached by content."""

from cfaug.data.index.index import Index
from cfaug.data.index.opening import open_index

__all__ = ["Index", "open_index"]
