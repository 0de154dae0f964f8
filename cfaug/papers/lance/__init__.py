"""LANCE: stress tests of classifiers on edited photos, and what the edits reveal."""
