"""Caption edits that ignore the image: baselines of other papers.

The baselines of cross-modal insertion (Ramshetty et al., 2023, section 4.3) are those of TextAttack
0.3.8 (Morris et al., 2020) with the settings of the authors' notebook, reimplemented with keyed
random numbers and batches: they give texts of the same distribution, not the same texts.
"""

from cfaug.editing.baselines.checklist import CheckListEdits
from cfaug.editing.baselines.clare import ClareEdits
from cfaug.editing.baselines.editor import EasyDataAugmentation, NegclipSwaps, RandomDeletion

__all__ = [
    "CheckListEdits",
    "ClareEdits",
    "EasyDataAugmentation",
    "NegclipSwaps",
    "RandomDeletion",
]
