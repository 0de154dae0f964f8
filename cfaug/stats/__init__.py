"""Metrics and statistics as pure functions: arrays in, numbers out, conventions written down."""
