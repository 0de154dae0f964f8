"""The published insertion algorithm, one caption and one candidate at a time: a slow reference.

Written from the description of what the authors' script does, with its departures from the paper;
plain transformers, nothing of ``cfaug`` but the rounding of what models say to five digits.
"""

from __future__ import annotations

import string
from dataclasses import dataclass

import numpy as np
import torch

PUNCTUATION = string.punctuation


def five(value: float) -> float:
    return float(f"{value:.5g}")


@dataclass
class Released:
    """The script with its models; ``nouns`` maps a text to (word, first character) pairs."""

    tokenizer: object
    bert: object
    clip: object
    clip_processor: object
    nouns: object
    vector: object
    stop_tokens: frozenset
    lambdas: tuple = (1, 1, 1)
    k: int = 3
    threshold: float = 0.7
    method: str = "mix"

    def insert(self, text, objects, attributes, image):
        """Return the augmented text, and the words that were put at the masks."""
        masked, where = self.find_masks(text, objects)
        tokens = ["", *self.tokenizer.tokenize(masked), ""]
        seen_by_bert = ["", *self.tokenizer.tokenize(text), ""]
        whole_words = self.whole_words(tokens)
        chosen = []
        for at in [i for i, token in enumerate(tokens) if token == "[MASK]"]:
            words, probabilities = self.predict(seen_by_bert, at)
            score = np.zeros(self.k)
            score += self.lambdas[0] * self.stretch(probabilities)
            score = score[: len(words)]
            if words:
                numbers = where.get(whole_words[at + 1], [])
                similar = [
                    self.similarity(word, [attributes[n] for n in numbers]) for word in words
                ]
                score = score + self.lambdas[1] * self.stretch(similar)
                far = []
                for word in words:
                    tokens[at] = word
                    far.append(self.distance(self.join(tokens), image))
                score = score + self.lambdas[2] * self.stretch(far)
            score = score / max(sum(abs(one) for one in self.lambdas), 1)
            tokens[at] = words[int(np.argmax(score))] if words else ""
            chosen.append(tokens[at])
        return self.join(tokens), chosen

    def find_masks(self, text, objects):
        if self.method == "sim":
            return self.similar_masks(text, objects)
        masked, where = self.direct_masks(text, objects)
        if self.method == "mix" and not where:
            return self.similar_masks(text, objects)
        return masked, where

    def direct_masks(self, text, objects):
        """Put a mask before the first occurrence of every object between spaces."""
        where = {}
        for number, name in enumerate(objects):
            first_word = name.split()[0]
            if name in where:
                where[first_word].append(number)
                continue
            at = text.find(name)
            end = at + len(name)
            preceded = at > 0 and text[at - 1] == " "
            followed = end == len(text) or text[end : end + 1] == " "
            if preceded and followed and text[max(at - 7, 0) : at - 1] != "[MASK]":
                where[first_word] = [number]
                text = text[:at] + "[MASK] " + text[at:]
        return text, where

    def similar_masks(self, text, objects):
        """Put a mask before every noun that is similar to an object, each noun once."""
        nouns = self.nouns(text)
        where, shift = {}, 0
        masked = text
        for word, start in nouns:
            clean = "".join(c for c in word if c.isalpha())
            for number, name in enumerate(objects):
                if five(self.vector(clean) @ self.vector(name)) < self.threshold:
                    continue
                if clean in where:
                    where[clean].append(number)
                    continue
                place = start + 7 * shift
                masked = masked[:place] + "[MASK] " + masked[place:]
                where[clean] = [number]
                shift += 1
        return masked, where

    def whole_words(self, tokens):
        """Return for every token the word of which it is a piece."""
        words = []
        for i in range(len(tokens)):
            first, last = i, i
            while tokens[first].startswith("##"):
                first -= 1
            while last + 1 < len(tokens) and tokens[last + 1].startswith("##"):
                last += 1
            word = tokens[first] + "".join(
                t.removeprefix("##") for t in tokens[first + 1 : last + 1]
            )
            words.append(word)
        return words

    def predict(self, seen, at):
        """Return up to k tokens and their probabilities, zeros where there are fewer."""
        seen.insert(at, "[MASK]")
        noun, left = seen[at + 1], (seen[at - 3 : at] if at >= 3 else [])
        ids = torch.tensor([self.tokenizer.convert_tokens_to_ids(seen)])
        with torch.no_grad():
            p = self.bert(input_ids=ids).logits[0, at].double().softmax(-1)
        stop = self.stop_tokens
        words, probabilities = [], [0.0] * self.k
        for number in p.argsort(descending=True, stable=True)[:20].tolist():
            word = self.tokenizer.convert_ids_to_tokens(number)
            if word in stop or word == noun or word in left or word == "[UNK]":
                continue
            probabilities[len(words)] = five(float(p[number]))
            words.append(word)
            if len(words) == self.k:
                break
        return words, probabilities

    def similarity(self, word, attributes):
        if not attributes:
            return 0.0
        return max(five(self.vector(word) @ self.vector(one)) for one in attributes)

    def distance(self, text, image):
        tokens = self.clip_processor(text=[f"This is {text}"], return_tensors="pt", truncation=True)
        pixels = self.clip_processor(images=image, return_tensors="pt")["pixel_values"].double()
        with torch.no_grad():
            a = self.clip.get_text_features(**tokens)
            b = self.clip.get_image_features(pixel_values=pixels)
        a, b = (one if isinstance(one, torch.Tensor) else one.pooler_output for one in (a, b))
        return five(1 - float(torch.nn.functional.cosine_similarity(a, b)))

    def stretch(self, values):
        """Map the least to 0 and the greatest to 1; equal values are divided by the greatest."""
        values = np.array(values, dtype=float)
        least = 0 if values.min() == values.max() else values.min()
        return (values - least) / max(values.max() - least, 1e-12)

    def join(self, tokens):
        """Write tokens as a text, without the first and the last."""
        text, glue = "", False
        for token in tokens[1:-1]:
            if token == "":
                continue
            if token.startswith("##"):
                text += token[2:]
            elif token in PUNCTUATION:
                text += token
                glue = glue or token == "'"
            else:
                text += token if glue else f" {token}"
                glue = False
        return text[1:]
