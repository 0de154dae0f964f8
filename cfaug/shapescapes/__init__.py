"""The embedded world: drawn scenes whose perfect counterfactuals are known."""

from cfaug.shapescapes.settings import WorldSettings
from cfaug.shapescapes.store import ensure
from cfaug.shapescapes.vocabulary import PROMPTS, SUBJECTS

CLASS_NAMES = SUBJECTS

__all__ = ["CLASS_NAMES", "PROMPTS", "WorldSettings", "ensure"]
