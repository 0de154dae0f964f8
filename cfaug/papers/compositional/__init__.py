"""Compositional sets: which captions are true of an image, and which images they belong to."""
