"""Compositional tests of the embedded world: pictures of one or two things, and minimal pairs."""
