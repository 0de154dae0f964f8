"""Cross-modal attribute insertions (XMAI; Ramshetty et al., 2023): words before a caption's nouns.

``AttributeInsertion`` is the editor; it compares texts and images by ``ImageTextDistance``.
"""

from cfaug.text.insertion.block_list import BlockList
from cfaug.text.insertion.editor import AttributeInsertion
from cfaug.text.insertion.image_text import ImageTextDistance
from cfaug.text.insertion.switches import Switches

__all__ = ["AttributeInsertion", "BlockList", "ImageTextDistance", "Switches"]
