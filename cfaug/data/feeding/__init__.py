"""Batches: their order, the loader and the cache of decoded pixels."""
