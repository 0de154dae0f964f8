"""Features of one image and one prompt at a time, to hold batches against."""

from __future__ import annotations

import torch

from cfaug.core.pixels import decode_image


class Twin:
    """One image, one prompt."""

    def __init__(self, model):
        self.model = model

    def image(self, encoded):
        pixels = self.model.transform(decode_image(encoded, "it"))[None].copy()
        with torch.inference_mode():
            features = self.model.encode_image(torch.from_numpy(pixels))[0].double()
        return features / features.norm()

    def text(self, text):
        with torch.inference_mode():
            features = self.model.encode_text(self.model.tokenize([text]))[0].double()
        return features / features.norm()
