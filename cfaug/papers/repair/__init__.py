"""Repair: from the failures of a model to counterfactuals that may mend them."""
