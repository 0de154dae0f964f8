"""Edits of captions that know nothing of the image: the baselines of cross-modal insertion.

Ramshetty et al. (2023), section 4.3: TextAttack 0.3.8 (Morris et al., 2020) with the settings of
their notebook. These are written anew, keyed by item and batched; they give texts of the same
distribution, not the same texts.
"""

from cfaug.text.baselines.checklist import CheckListEdits
from cfaug.text.baselines.clare import ClareEdits
from cfaug.text.baselines.deletion import RandomDeletion
from cfaug.text.baselines.eda import EasyDataAugmentation

__all__ = ["CheckListEdits", "ClareEdits", "EasyDataAugmentation", "RandomDeletion"]
