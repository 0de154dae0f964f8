"""The benchmarks on tiny sources, for ``tests/run/test_unread_properties.py``."""

from __future__ import annotations

from tests.run.evaluated_sources import Case


class Letters:
    """A sentence encoder that counts letters."""

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return an embedding of each text."""
        return [[text.count(letter) for letter in "aeio"] for text in texts]

    def describe(self) -> dict[str, str]:
        """Return what identifies the encoder."""
        return {"sentence_encoder": "letters"}


CASES = {
    "insertion": Case(
        ("benchmark=insertion", "benchmark.data=@texts", "benchmark.pairs_per_batch=4",
         "benchmark.synonyms=null"),
        {"data": "@bigger",
         "sentence_encoder": {"_target_": f"{__name__}.Letters"},
         "synonyms": "wordnet", "answers": "@kept.jsonl"},
    ),
    "text_overlap": Case(
        ("benchmark=text_overlap", "benchmark.data=@texts", "benchmark.synonyms=null"),
        {"data": "@bigger", "synonyms": "wordnet", "answers": "@kept.jsonl"}, model=(),
    ),
}  # fmt: skip
