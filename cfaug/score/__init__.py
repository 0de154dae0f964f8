"""CLIP and directional similarity, and the selection of candidates by scores."""
