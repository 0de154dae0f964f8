"""The tiny models that ship with cfaug: how each is trained, and its weights."""
