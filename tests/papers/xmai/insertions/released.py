"""The published insertion algorithm, one caption and one candidate at a time: a slow reference.

Written from the description of what the authors' script does, with plain transformers; nothing of
``cfaug`` but the rounding of what models say to five digits. Where the script departs from the
paper by mistake (``docs/xmai.md``), it is as the paper has it: the language model reads the caption
between its usual tokens and sees the words inserted before; neighbours are three words on either
side; whole words are candidates, stop words in any case are not; CLIP reads no mask.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


def five(value: float) -> float:
    return float(f"{value:.5g}")


@dataclass
class Published:
    """The algorithm with its models; ``is_noun`` says of a word whether it is one."""

    tokenizer: object
    bert: object
    clip: object
    clip_processor: object
    is_noun: object
    vector: object
    stop_words: frozenset
    lambdas: tuple = (1, 1, 1)
    k: int = 3
    threshold: float = 0.7
    method: str = "mix"

    def insert(self, caption, objects, attributes, image):
        """Return the words of the caption with its insertions, and the insertions."""
        written, chosen, at = [], [], 0
        for place, numbers in sorted(self.find(caption, objects).items()):
            written += caption[at:place]
            after = caption[place:]
            words, probabilities = self.predict(written, after)
            at = place
            if not words:
                continue
            about = list(dict.fromkeys(attributes[number] for number in numbers))
            scores = [
                self.stretch(probabilities),
                self.stretch([self.similarity(word, about) for word in words]),
                self.stretch([self.distance([*written, word, *after], image) for word in words]),
            ]
            total = sum(weight * part for weight, part in zip(self.lambdas, scores, strict=True))
            written.append(words[int(np.argmax(total))])
            chosen.append(written[-1])
        return [*written, *caption[at:]], chosen

    def find(self, caption, objects):
        """Return {place of a noun: numbers of the objects that it mentions}."""
        direct = {}
        for number, name in enumerate(objects):
            if self.method != "sim" and name in caption:
                direct.setdefault(caption.index(name), []).append(number)
        if self.method == "direct" or direct:
            return direct
        similar = {}
        for place, word in enumerate(caption):
            if self.is_noun(word) and caption.index(word) == place:
                near = [n for n, name in enumerate(objects) if self.alike(word, name)]
                similar |= {place: near} if near else {}
        return similar

    def alike(self, word, name):
        return five(self.vector(word) @ self.vector(name)) >= self.threshold

    def predict(self, before, after):
        """Return up to k words and their probabilities."""
        left, right = (self.tokenizer.tokenize(" ".join(part)) for part in (before, after))
        tokens = ["[CLS]", *left, "[MASK]", *right, "[SEP]"]
        ids = torch.tensor([self.tokenizer.convert_tokens_to_ids(tokens)])
        with torch.no_grad():
            p = self.bert(input_ids=ids).logits[0, 1 + len(left)].double().softmax(-1)
        near = {word.lower() for word in (*before[-3:], *after[:4])}
        words, probabilities = [], []
        for number in p.argsort(descending=True, stable=True)[:20].tolist():
            word = self.tokenizer.convert_ids_to_tokens(number)
            if not word.isalpha() or word.lower() in self.stop_words | near:
                continue
            words.append(word)
            probabilities.append(five(float(p[number])))
            if len(words) == self.k:
                break
        return words, probabilities

    def similarity(self, word, attributes):
        if not attributes:
            return 0.0
        return max(five(self.vector(word) @ self.vector(attribute)) for attribute in attributes)

    def distance(self, words, image):
        text = f"This is {' '.join(words)}"
        tokens = self.clip_processor(text=[text], return_tensors="pt", truncation=True)
        pixels = self.clip_processor(images=image, return_tensors="pt")["pixel_values"].double()
        with torch.no_grad():
            a = self.clip.get_text_features(**tokens)
            b = self.clip.get_image_features(pixel_values=pixels)
        a, b = (out if isinstance(out, torch.Tensor) else out.pooler_output for out in (a, b))
        return five(1 - float(torch.nn.functional.cosine_similarity(a, b)))

    def stretch(self, values):
        """Map the least to 0 and the greatest to 1, equal values to 0."""
        values = np.array(values, dtype=float)
        spread = values.max() - values.min()
        return (values - values.min()) / spread if spread else 0 * values
