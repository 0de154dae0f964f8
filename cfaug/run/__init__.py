"""The top floor: from a command line to a run with an identity."""

from cfaug.data.mixture.settings import data_seed
from cfaug.settings.merging import RESOLVERS

RESOLVERS["next"] = data_seed
"""``${next:${seed}}`` is the data seed that goes with a seed."""
