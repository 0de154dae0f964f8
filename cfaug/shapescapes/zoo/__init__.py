"""The tiny models that are shipped with cfaug: their training code and their weights."""
