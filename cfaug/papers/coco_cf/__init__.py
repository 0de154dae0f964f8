"""COCO-Counterfactuals: its tables and figures, and the frequency of the labels it alters."""

SETTINGS_OF_A_RUN = ("cfaug.papers.coco_cf.mixtures.PaperMixture",)
"""Classes that a run's ``config.yaml`` may name (``cfaug.planning.build``)."""
