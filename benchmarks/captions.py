"""The gain from batching across captions: edits of captions, four ways, with the same models.

"together" is the editor itself: masks, similarities and perplexities of all captions of a call in
length-sorted batches. "one caption" calls the same editor with one caption at a time. "one text"
gives every model one text at a time, each text once. "one candidate" is the plain loop: every
candidate goes through every filter by itself, its caption and the original are judged one by one,
and no result is kept for the next candidate. All four choose the same edits (checked).

Seconds are wall-clock time, on all cores of the machine for all four ways (unless ``--threads`` is
given), so run it on an idle machine.

    python benchmarks/captions.py                     # the tiny models of zoo=captions
    python benchmarks/captions.py --roberta           # random weights in roberta-base's shape, too
    python benchmarks/captions.py --roberta --device cuda
    python benchmarks/captions.py --captions FILE     # JSON lines with "caption"
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from generation import machine

from cfaug.core.types import Example
from cfaug.editing.filters import LowestPerplexity, PartOfSpeech, SimilarityBand
from cfaug.editing.language_models import CausalLM, MaskedLM, SentenceEncoder
from cfaug.editing.protocols import Blank, Candidate, Fill
from cfaug.editing.sentence import TextBlobTagger
from cfaug.editing.substitution import Substitution

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cfaug.core.types import Edited


SAMPLE = Path(__file__).parents[1] / "tests/zoo/held_out_captions.json"
WAYS = ("together", "one caption", "one text", "one candidate")


class OneByOne:
    """A model's methods, called with one text at a time."""

    def __init__(self, model: MaskedLM | SentenceEncoder | CausalLM) -> None:
        self.model = model

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Fill blank by blank."""
        return [self.model.fill([blank], top_k)[0] for blank in blanks]  # type: ignore[union-attr]

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Encode text by text."""
        import numpy as np

        return np.concatenate([self.model.encode([text]) for text in texts])  # type: ignore[union-attr]

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Judge text by text."""
        import numpy as np

        return np.concatenate([self.model.perplexity([text]) for text in texts])  # type: ignore[union-attr]

    def describe(self) -> dict[str, str]:
        """Describe the model."""
        return self.model.describe()


class Alone:
    """A filter or a ranker that is called with one candidate at a time."""

    def __init__(self, part: PartOfSpeech | SimilarityBand | LowestPerplexity) -> None:
        self.part = part
        self.name = getattr(part, "name", "choice")

    def keep(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Filter candidate by candidate."""
        return [kept for candidate in candidates for kept in self.part.keep([candidate])]  # type: ignore[union-attr]

    def rank(self, groups: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Judge candidate by candidate, then sort."""
        judged = [[self.part.rank([[candidate]])[0][0] for candidate in group] for group in groups]  # type: ignore[union-attr]
        return [
            sorted(group, key=lambda c: (c.notes["perplexity_1"], c.rank, c.position))
            for group in judged
        ]

    def describe(self) -> dict[str, str]:
        """Describe the part."""
        return self.part.describe()


def read(file: Path, count: int) -> list[Example]:
    """Read captions, evenly spread over the file."""
    content = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        texts = [text for scene in json.loads(content)["scenes"] for text in scene]
    else:
        texts = [json.loads(line)["caption"] for line in content.splitlines()]
    texts = texts[:: max(1, len(texts) // count)][:count]
    return [Example(f"c{i}", f"c{i}", (text,)) for i, text in enumerate(texts)]


def editors(
    masked: MaskedLM, sentence: SentenceEncoder, causal: CausalLM, band: tuple[float, float]
) -> dict[str, Substitution]:
    """Return the editor of each way; all share the models."""
    tagger = TextBlobTagger()
    single = OneByOne(masked), OneByOne(sentence), OneByOne(causal)

    def parts(m: Any, s: Any, c: Any) -> tuple[Any, ...]:
        return m, PartOfSpeech(tagger), SimilarityBand(s, *band), LowestPerplexity(c)

    def editor(filler: Any, first: Any, second: Any, choose: Any) -> Substitution:
        return Substitution(tagger, filler, choose, [first, second])

    together = editor(*parts(masked, sentence, causal))
    filler, *others = parts(*single)
    return {
        "together": together,
        "one caption": together,
        "one text": editor(filler, *others),
        "one candidate": editor(filler, *(Alone(part) for part in others)),
    }


def edit(editor: Substitution, way: str, captions: list[Example]) -> list[Edited]:
    if way != "one caption":
        return editor.edit(captions)
    return [edited for caption in captions for edited in editor.edit([caption])]


def measure(
    every: dict[str, Substitution], captions: list[Example], repeats: int
) -> dict[str, list[float]]:
    """Return the captions per second of each way, with interleaved repeats."""
    for editor in every.values():
        editor.edit(captions[:2])  # loads the models and warms them
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    by_way: dict[str, list[Edited]] = {}
    for repeat in range(repeats):
        for way in [*WAYS[repeat % 4 :], *WAYS[: repeat % 4]]:
            # Like timeit: a garbage collection could otherwise fall into any pass.
            gc.collect()
            gc.disable()
            started = time.perf_counter()
            by_way[way] = edit(every[way], way, captions)
            rates[way].append(len(captions) / (time.perf_counter() - started))
            gc.enable()
            print(f"{way}: {rates[way][-1]:.1f} captions/s", file=sys.stderr)
    chosen = [
        [[proposal.texts for proposal in of_caption.proposals] for of_caption in by_way[way]]
        for way in WAYS
    ]
    if any(other != chosen[0] for other in chosen):
        raise SystemExit("the four ways chose different edits")
    edited = sum(bool(of_caption.proposals) for of_caption in by_way["together"])
    candidates = sum(of_caption.survivors["words"] for of_caption in by_way["together"])
    print(f"{len(captions)} captions, {candidates} candidates, {edited} edited")
    return rates


def report(name: str, rates: dict[str, list[float]]) -> None:
    print(f"\n{name}; captions per second, median (lowest to highest)\n")
    print("| models are given | captions/s | range | together is faster by |\n|---|---|---|---|")
    best = statistics.median(rates["together"])
    for way, values in rates.items():
        middle = statistics.median(values)
        print(
            f"| {way} | {middle:.2f} | {min(values):.2f} to {max(values):.2f} "
            f"| {best / middle:.1f} |"
        )


def random_models(folder: Path, device: str) -> tuple[MaskedLM, SentenceEncoder, CausalLM]:
    """Save random weights in the shapes of roberta-base, all-MiniLM-L6-v2 and gpt2.

    They have the tiny zoo's vocabulary of whole words, so that some guesses pass the tagger; the
    heads are therefore smaller than the real ones.
    """
    import torch
    from transformers import (
        AutoTokenizer,
        BertConfig,
        BertModel,
        GPT2Config,
        GPT2LMHeadModel,
        RobertaConfig,
        RobertaForMaskedLM,
    )

    from cfaug.core.weights import resolve

    torch.manual_seed(0)
    tokenizers = {
        name: AutoTokenizer.from_pretrained(resolve(f"zoo:language/{name}"))
        for name in ("masked", "sentence", "causal")
    }
    size = len(tokenizers["masked"])
    small = {"vocab_size": size, "max_position_embeddings": 66, "pad_token_id": 0}
    models = {
        "masked": RobertaForMaskedLM(RobertaConfig(**small)),
        "sentence": BertModel(
            BertConfig(
                **small, hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                intermediate_size=1536,
            )
        ),
        "causal": GPT2LMHeadModel(GPT2Config(vocab_size=size)),
    }  # fmt: skip
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizers[name].save_pretrained(folder / name)
    return (
        MaskedLM(str(folder / "masked"), device=device),
        SentenceEncoder(str(folder / "sentence"), device=device),
        CausalLM(str(folder / "causal"), device=device),
    )


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--captions", type=Path, default=SAMPLE, help="JSON Lines (bundled sample)")
    parser.add_argument("--count", type=int, default=200, help="number of captions (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="passes of each way (%(default)s)")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--roberta", action="store_true", help="also time the large shapes")
    parser.add_argument("--few", type=int, default=6, help="captions of large shapes (%(default)s)")
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count() or 1,
        help="threads of torch, for all ways (all cores)",
    )
    args = parser.parse_args(argv)
    import torch

    torch.set_num_threads(args.threads)
    captions = read(args.captions, args.count)
    print(machine(args.device))
    tiny = (
        MaskedLM("zoo:language/masked", device=args.device),
        SentenceEncoder("zoo:language/sentence", device=args.device),
        CausalLM("zoo:language/causal", device=args.device),
    )
    rates = measure(editors(*tiny, (0.8, 0.91)), captions, args.repeats)
    report("Tiny models of zoo=captions, float32", rates)
    if args.roberta:
        with tempfile.TemporaryDirectory() as name:
            large = random_models(Path(name), args.device)
            # Random sentences are all similar, so the band is open: later filters need work.
            rates = measure(editors(*large, (-1, 1)), captions[: args.few], 1)
        report("Random weights, shapes of roberta-base, MiniLM-L6 and gpt2, float32", rates)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
