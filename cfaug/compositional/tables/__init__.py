"""Compositional tests: published numbers beside ours."""
