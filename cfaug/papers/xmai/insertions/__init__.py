"""Cross-modal attribute insertions (XMAI; Ramshetty et al., 2023): words before a caption's nouns.

``AttributeInsertion`` is the editor; it compares texts and images by ``ImageTextDistance``.
"""

from cfaug.papers.xmai.insertions.editor import AttributeInsertion
from cfaug.papers.xmai.insertions.scores import BlockList, ImageTextDistance

__all__ = ["AttributeInsertion", "BlockList", "ImageTextDistance"]
