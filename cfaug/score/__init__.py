"""CLIP and directional similarity, and what is kept by them."""
