"""COCO-Counterfactuals: its tables and figures, and the frequency of the labels it alters."""
