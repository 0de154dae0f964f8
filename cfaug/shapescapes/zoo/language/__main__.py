"""Train the tiny language models: ``python -m cfaug zoo language out=FOLDER captions=FILE seed=0``.

A masked language model, a causal one and a sentence encoder over one vocabulary of whole words, for
editing captions offline. Rebuilding with the seed, threads and versions in ``card.json`` gives the
same metrics.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cfaug.shapescapes.zoo.command import fresh_folder, read, run, save_half, write_card
from cfaug.shapescapes.zoo.language.training import Corpus, LanguageSettings, vocabulary
from cfaug.shapescapes.zoo.language.training import read as read_captions

_Model = TypeVar("_Model")

CREDIT = (
    "Trained on captions of MS-COCO 2017 validation (Lin et al., 2014; Chen et al., 2015), "
    "(c) COCO Consortium, CC BY 4.0, https://cocodataset.org; the captions are not part of this."
)


def build(settings: LanguageSettings, corpus: Corpus, folder: Path) -> dict[str, Any]:
    """Train, evaluate and write the three models; return metrics, seconds and sizes."""
    from cfaug.shapescapes.zoo.language import training

    texts = [text for group in corpus.training for text in group]
    unseen = [text for group in corpus.held_out for text in group]
    words = vocabulary(texts, settings.min_count)
    bert = training.build_tokenizer(words)
    gpt = training.build_tokenizer(words, causal=True)
    masked, masked_s = _time(lambda: training.train_masked(settings, bert, texts))
    save_half(masked, bert, folder / "masked")
    causal, causal_s = _time(lambda: training.train_causal(settings, gpt, texts))
    save_half(causal, gpt, folder / "causal")
    sentence, sentence_s = _time(lambda: training.train_sentence(settings, bert, corpus.training))
    save_half(sentence, bert, folder / "sentence")
    every = {"masked": masked, "causal": causal, "sentence": sentence}
    return {
        "metrics": {
            **training.evaluate_masked(masked, bert, unseen),
            **training.evaluate_causal(causal, gpt, unseen),
            **training.evaluate_sentence(sentence, bert, corpus.held_out),
        },
        "words": len(words),
        "captions": {"training": len(texts), "held_out": len(unseen)},
        "parameters": {
            name: sum(p.numel() for p in model.parameters()) for name, model in every.items()
        },
        "processor_seconds": {"masked": masked_s, "causal": causal_s, "sentence": sentence_s},
    }


def _time(work: Callable[[], _Model]) -> tuple[_Model, float]:
    """Return the result and the processor time in seconds, as others may share the core."""
    started = time.process_time()
    model = work()
    return model, round(time.process_time() - started, 1)


def main(argv: list[str]) -> int:
    """Train all three and write them with one ``card.json``."""
    settings = read(LanguageSettings, argv)
    folder = fresh_folder(settings.out)
    corpus = read_captions(Path(settings.captions), settings.held_out, settings.seed)
    facts = {"credit": CREDIT, **build(settings, corpus, folder)}
    libraries = ("torch", "transformers")
    write_card(folder, "language", settings, facts, libraries=libraries)
    return 0


if __name__ == "__main__":
    run(main)
