"""Dual encoders of transformers and open_clip behind one protocol."""
