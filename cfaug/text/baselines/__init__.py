"""Caption edits that ignore the image: baselines of other papers.

Those of cross-modal insertion (Ramshetty et al., 2023, section 4.3) are TextAttack 0.3.8's (Morris
et al., 2020) with the settings of their notebook, reimplemented with keyed random numbers and
batches: they give texts of the same distribution, not the same texts.
"""

from cfaug.text.baselines.checklist import CheckListEdits
from cfaug.text.baselines.clare import ClareEdits
from cfaug.text.baselines.deletion import RandomDeletion
from cfaug.text.baselines.eda import EasyDataAugmentation
from cfaug.text.baselines.negclip_swaps import NegclipSwaps

__all__ = [
    "CheckListEdits",
    "ClareEdits",
    "EasyDataAugmentation",
    "NegclipSwaps",
    "RandomDeletion",
]
