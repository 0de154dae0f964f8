"""Train the tiny language models: ``python -m cfaug.zoo.language out=FOLDER captions=FILE seed=0``.

A masked language model, a causal one and a sentence encoder over one vocabulary of whole words, for
editing captions offline. Rebuilding with the seed, threads and versions in ``card.json`` gives the
same metrics.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from cfaug.errors import UserError
from cfaug.zoo.language.corpus import Corpus, read, vocabulary
from cfaug.zoo.language.settings import LanguageSettings, parse

_Model = TypeVar("_Model")

CREDIT = (
    "Trained on captions of MS-COCO 2017 validation (Lin et al., 2014; Chen et al., 2015), "
    "(c) COCO Consortium, CC BY 4.0, https://cocodataset.org; the captions are not part of this."
)


def build(settings: LanguageSettings, corpus: Corpus, folder: Path) -> dict[str, Any]:
    """Train, evaluate and write the three models; return metrics, seconds and sizes."""
    from cfaug.zoo.language import evaluation, models, training

    texts = [text for group in corpus.training for text in group]
    unseen = [text for group in corpus.held_out for text in group]
    words = vocabulary(texts, settings.min_count)
    bert = models.build_tokenizer(words)
    gpt = models.build_tokenizer(words, causal=True)
    masked, masked_s = _timed(lambda: training.train_masked(settings, bert, texts))
    models.save(masked, bert, folder / "masked")
    causal, causal_s = _timed(lambda: training.train_causal(settings, gpt, texts))
    models.save(causal, gpt, folder / "causal")
    sentence, sentence_s = _timed(lambda: training.train_sentence(settings, bert, corpus.training))
    models.save(sentence, bert, folder / "sentence")
    every = {"masked": masked, "causal": causal, "sentence": sentence}
    return {
        "metrics": {
            **evaluation.evaluate_masked(masked, bert, unseen),
            **evaluation.evaluate_causal(causal, gpt, unseen),
            **evaluation.evaluate_sentence(sentence, bert, corpus.held_out),
        },
        "words": len(words),
        "captions": {"training": len(texts), "held_out": len(unseen)},
        "parameters": {
            name: sum(p.numel() for p in model.parameters()) for name, model in every.items()
        },
        "processor_seconds": {"masked": masked_s, "causal": causal_s, "sentence": sentence_s},
    }


def _timed(work: Callable[[], _Model]) -> tuple[_Model, float]:
    """Return what the work gives, and the processor seconds it took: others may share the core."""
    started = time.process_time()
    model = work()
    return model, round(time.process_time() - started, 1)


def main(argv: list[str]) -> int:
    """Train all three and write them with one ``card.json``."""
    settings = parse(argv)
    folder = Path(settings.out)
    if folder.exists():
        raise UserError(f"{folder} exists already: remove it or choose another out=FOLDER")
    corpus = read(Path(settings.captions), settings.held_out, settings.seed)

    import torch
    import transformers

    arguments = {k: v for k, v in asdict(settings).items() if k not in ("out", "captions")}
    card = {
        "command": " ".join(
            [
                "python -m cfaug.zoo.language out=FOLDER captions=FILE",
                *(f"{name}={value}" for name, value in arguments.items()),
            ]
        ),
        "credit": CREDIT,
        "settings": arguments,
        **build(settings, corpus, folder),
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    (folder / "card.json").write_text(json.dumps(card, indent=2) + "\n")
    print(json.dumps(card["metrics"]))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
