"""The gain from batching in attribute insertion (XMAI), and the time of sweeps and baselines.

"together" is the editor itself: masks of all captions at the same position of their order go
through the language model together, candidate captions through CLIP likewise, and every photo and
word once. "one candidate" is the plain loop with the same loaded models: one caption after the
other, every blank, word and candidate caption by itself, the photo once per mask as in the released
code, and no result kept for the next caption. Both insert the same words (checked). Rounds are
interleaved; the ratio is the geometric mean over rounds with Student's 95 % interval on its
logarithm.

A sweep runs all settings of ``sweeps/xmai_lambdas.yaml``, ``xmai_k.yaml`` or
``xmai_thresholds.yaml`` with model outputs kept on disk, and is compared with its slowest setting
alone, without kept outputs. If a setting inserts another word, later masks have other contexts,
which need further model calls; the counts of calls show their share of the time. With
``context=alone`` there are no such calls.

Captions are real (MS-COCO, CC BY 4.0, from the tests), five for each photo. Photos are noise, and
their detections are nouns of the captions with random attributes, as times do not depend on the
content of a photo. The paper took .196 s a caption on a T4 (Table 3), without its detector.

    python benchmarks/insertion.py                    # the tiny models
    python benchmarks/insertion.py --shapes paper --device cuda   # random weights, paper's shapes
    python benchmarks/insertion.py --out DIR          # DIR/timing.csv: seconds a caption by method
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from generation import interval, machine
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.protocols import Editor
from cfaug.core.rng import generator
from cfaug.core.types import Edited, Example, SourceImage
from cfaug.editing.baselines import (
    CheckListEdits,
    ClareEdits,
    EasyDataAugmentation,
    RandomDeletion,
)
from cfaug.editing.language_models import MaskedLM, SentenceEncoder
from cfaug.editing.protocols import Blank, Fill, MaskFiller, SentenceEmbedder
from cfaug.editing.sentence import TextBlobTagger, split
from cfaug.models.specs import HFClip
from cfaug.papers.xmai.insertions import AttributeInsertion, ImageTextDistance
from cfaug.papers.xmai.insertions.mentions import Context
from cfaug.settings.settings_files import find_sweep

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "tests/zoo/held_out_captions.json"
SWEEPS = ("xmai_lambdas", "xmai_k", "xmai_thresholds")
ATTRIBUTES = ("white", "black", "brown", "red", "blue", "wooden", "large", "small", "round", "wet")
OBJECTS = 5
"""Detections of a photo, so many that captions get about as many insertions as the paper's."""

PAPER_SECONDS = 0.196
"""The paper's seconds for a caption with k = 3 (Table 3)."""


@dataclass(frozen=True)
class Noise:
    """A photo of noise."""

    number: int

    @property
    def digest(self) -> str:
        """Return the photo's name."""
        return f"{self.number:064x}"

    def read(self) -> bytes:
        """Return a PNG."""
        return draw_noise(self.number)


@cache
def draw_noise(number: int) -> bytes:
    """Return a PNG, which is made only once."""
    pixels = generator(0, "photo", number).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


class Forgetful(dict[str, Any]):
    """A cache of photos that claims to contain none."""

    def __contains__(self, key: object) -> bool:
        """Return false."""
        return False


class OneByOne:
    """A language model or word encoder that is called with one text at a time."""

    def __init__(self, model: MaskFiller | SentenceEmbedder) -> None:
        self.model: Any = model

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Fill blank by blank."""
        return [self.model.fill([blank], top_k)[0] for blank in blanks]

    def encode(self, texts: Sequence[str]) -> Any:
        """Encode text by text."""
        return np.concatenate([self.model.encode([text]) for text in texts])

    def describe(self) -> dict[str, str]:
        """Describe the model."""
        return dict(self.model.describe())


class EachCandidate(ImageTextDistance):
    """CLIP, called with one candidate caption at a time."""

    def __init__(self, distance: ImageTextDistance) -> None:
        super().__init__(**{name: getattr(distance, name) for name in ("model", "device", "dtype")})
        self.__dict__["_encoder"] = distance._encoder
        self.__dict__["_place"] = distance._place

    def embed_texts(self, texts: Sequence[str]) -> list[Any]:
        """Embed text by text."""
        return [super(EachCandidate, self).embed_texts([text])[0] for text in texts]


class OneCaption:
    """Insertion as a plain loop: a new editor for every caption, so that no result is kept."""

    def __init__(self, editor: AttributeInsertion) -> None:
        assert editor.image_text is not None
        assert editor.word_encoder is not None
        self.editor = replace(
            editor,
            filler=OneByOne(editor.filler),
            word_encoder=OneByOne(editor.word_encoder),
            image_text=EachCandidate(editor.image_text),
        )

    def edit(self, examples: Sequence[Example]) -> list[Edited]:
        """Edit caption by caption."""
        return [self._edit(example) for example in examples]

    def _edit(self, example: Example) -> Edited:
        made = replace(self.editor)
        made._weigher.__dict__["_embedded"] = Forgetful()
        return made.edit([example])[0]

    def describe(self) -> dict[str, str]:
        """Describe the editor."""
        return self.editor.describe()


def read(file: Path, count: int) -> list[Example]:
    """Return captions, five for each photo, with the photo's detections."""
    if file.suffix == ".json":
        scenes = json.loads(file.read_text(encoding="utf-8"))["scenes"]
    else:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        by_photo: dict[Any, list[str]] = {}
        for row in rows:
            by_photo.setdefault(row["image_id"], []).append(row["caption"])
        scenes = list(by_photo.values())
    examples = []
    for number, texts in enumerate(scenes):
        extra = {"detections": detect(texts, number)}
        for i, text in enumerate(texts):
            photo: SourceImage = Noise(number)
            examples.append(Example(f"p{number}-{i}", f"p{number}", (text,), photo, extra=extra))
    return examples[:count]


def detect(texts: Sequence[str], number: int) -> list[dict[str, Any]]:
    """Return the most frequent nouns of a photo's captions, each with a random attribute."""
    words = [split(text).words for text in texts]
    tags = TextBlobTagger().tag(words)
    nouns = Counter(
        word.lower()
        for some, their in zip(words, tags, strict=True)
        for word, tag in zip(some, their, strict=True)
        if tag.startswith("NN") and word.isalpha()
    )
    draw = generator(0, "attributes", number)
    return [
        {"label": noun, "attributes": [{"name": str(draw.choice(ATTRIBUTES))}]}
        for noun, _ in nouns.most_common(OBJECTS)
    ]


def insertion(shapes: str, device: str, folder: Path) -> AttributeInsertion:
    """Return the editor with the tiny models, or with random weights in the paper's shapes."""
    if shapes == "paper":
        language, words, clip = random_weights(folder)
    else:
        language, words, clip = "zoo:language/masked", "zoo:language/sentence", "zoo:clip-0"
    return AttributeInsertion(
        filler=MaskedLM(language, device=device),
        word_encoder=SentenceEncoder(words, device=device),
        tagger=TextBlobTagger(),
        image_text=ImageTextDistance(HFClip(clip), device=device),
        # The tiny and the random encoder find all words alike: no noun is compared, as with t > 1.
        threshold=2.0,
    )


def random_weights(folder: Path) -> tuple[str, str, str]:
    """Save random weights in the shapes of bert-base, for language and words, and CLIP ViT-B/32.

    They have the tiny zoo's vocabularies, so their heads and token embeddings are smaller.
    """
    import torch
    from transformers import (
        AutoTokenizer,
        BertConfig,
        BertForMaskedLM,
        BertModel,
        CLIPConfig,
        CLIPImageProcessor,
        CLIPModel,
        CLIPProcessor,
        CLIPTextConfig,
        CLIPTokenizerFast,
    )

    from cfaug.core.weights import resolve

    torch.manual_seed(0)
    names = {"language": "zoo:language/masked", "words": "zoo:language/sentence"}
    for name, source in names.items():
        tokenizer = AutoTokenizer.from_pretrained(resolve(source))
        config = BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id or 0)
        kind = BertForMaskedLM if name == "language" else BertModel
        kind(config).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = [
        "<|startoftext|>",
        "<|endoftext|>",
        *letters,
        *(f"{letter}</w>" for letter in letters),
    ]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    text = CLIPTextConfig(
        vocab_size=len(vocabulary), bos_token_id=0, eos_token_id=1, pad_token_id=1
    )
    CLIPModel(CLIPConfig(text_config=text.to_dict())).save_pretrained(folder / "clip")
    tokenizer = CLIPTokenizerFast(vocab=vocabulary, merges=[], model_max_length=77)
    CLIPProcessor(CLIPImageProcessor(), tokenizer).save_pretrained(folder / "clip")
    return str(folder / "language"), str(folder / "words"), str(folder / "clip")


def fresh(editor: AttributeInsertion, **changes: Any) -> AttributeInsertion:
    """Return an editor with the same loaded models but empty caches."""
    return replace(editor, **changes)


def clock(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call, and its result."""
    with redirect_stderr(io.StringIO()):  # the list of blocked words
        began = time.perf_counter()
        result = run()
        return time.perf_counter() - began, result


def texts_of(edited: Iterable[Edited]) -> list[str]:
    """Return the changed captions."""
    return [proposal.texts[1] for of_caption in edited for proposal in of_caption.proposals]


def compare(editor: AttributeInsertion, examples: Sequence[Example], rounds: int, few: int) -> None:
    """Print the captions per second of both ways, and their ratio."""
    loop = OneCaption(editor)
    fresh(editor).edit(examples[:20])
    loop.edit(examples[:2])
    together, alone = [], []
    for _ in range(rounds):
        seconds, edited = clock(lambda: fresh(editor).edit(examples))
        together.append(seconds / len(examples))
        seconds, plain = clock(lambda: loop.edit(examples[:few]))
        alone.append(seconds / few)
        if texts_of(edited)[:few] != texts_of(plain):
            raise SystemExit("the two ways insert different words")
    words = [len(p.details[1]["changes"]) for of_caption in edited for p in of_caption.proposals]
    rates = [1 / statistics.median(times) for times in (together, alone)]
    ratios = [slow / fast for slow, fast in zip(alone, together, strict=True)]
    print(
        f"{len(examples)} captions together: {rates[0]:.1f} a second "
        f"({statistics.median(together):.4f} s a caption; the paper on a T4: {PAPER_SECONDS} s), "
        f"{np.mean(words):.2f} insertions a caption; one candidate at a time ({few} of them, the "
        f"same words): {rates[1]:.1f} a second; faster by {interval(ratios)}, {rounds} rounds",
        flush=True,
    )


def sweep_settings(name: str) -> list[dict[str, Any]]:
    """Return the settings of the editor in a sweep."""
    content = yaml.safe_load(find_sweep(f"{name}.yaml").read_text(encoding="utf-8"))
    [(key, spec)] = [
        (key.rpartition(".")[2], spec)
        for key, spec in content["parameters"].items()
        if key.startswith("recipe.editor.") and "values" in spec
    ]
    return [{key: value} for value in spec["values"]]


def sweep(
    name: str,
    editor: AttributeInsertion,
    examples: Sequence[Example],
    rounds: int,
    context: Context,
) -> None:
    """Print the time of all settings of a sweep relative to that of the slowest one alone."""
    settings = [{"context": context, **setting} for setting in sweep_settings(name)]
    ratios, counts = [], Counter[str]()
    for _ in range(rounds):
        cold = [fresh(editor, **setting) for setting in settings]
        alone = [clock(lambda made=made: made.edit(examples))[0] for made in cold]
        with tempfile.TemporaryDirectory() as folder:
            every = 0.0
            for setting in settings:
                made = fresh(editor, cache=folder, **setting)
                every += clock(lambda made=made: made.edit(examples))[0]
                counts.update(questions(made))
        ratios.append(every / max(alone))
    dearest = {
        kind: max(questions(made)[kind] for made in cold) for kind in ("guesses", "distances")
    }
    more = ", ".join(
        f"{counts[kind] / rounds / max(count, 1):.2f} times the {kind}"
        for kind, count in dearest.items()
    )
    print(
        f"{name}, context={context}: {len(settings)} settings cost {interval(ratios)} times the "
        f"dearest ({more} that it asks for)",
        flush=True,
    )


def questions(editor: AttributeInsertion) -> dict[str, int]:
    """Return the number of different inputs that an editor gave to each model."""
    return {"guesses": editor._guesser.cache.misses, "distances": editor._weigher.cache.misses}


def methods(editor: AttributeInsertion) -> Mapping[str, tuple[Editor, int | None]]:
    """Return every method by name, with its k if it has one."""
    every: dict[str, tuple[Editor, int | None]] = {
        "Deletion": (RandomDeletion(), None),
        "EDA": (EasyDataAugmentation(), None),
        "CheckList": (CheckListEdits(), None),
        "CLARE": (ClareEdits(editor.filler, TextBlobTagger()), None),
        "XMAI": (editor, None),
    }
    for k in (3, 5, 10):
        every[f"XMAI k={k}"] = (replace(editor, k=k), k)
    return every


def write_timing(
    folder: Path, editor: AttributeInsertion, examples: Sequence[Example], rounds: int
) -> None:
    """Write the seconds per caption of every method, as the median over rounds."""
    folder.mkdir(parents=True, exist_ok=True)
    every = methods(editor)
    times: dict[str, list[float]] = {name: [] for name in every}
    for name, (method, _) in every.items():
        try:
            method.edit(examples[:5])
        except UserError as error:
            print(f"{name} is left out: {error}", flush=True)
            times.pop(name)
    for _ in range(rounds):
        for name in times:
            method = every[name][0]
            if isinstance(method, AttributeInsertion):
                method = fresh(method)
            seconds, _ = clock(lambda method=method: method.edit(examples))
            times[name].append(seconds / len(examples))
    where = machine(
        "cuda" if "cuda" in str(editor.image_text and editor.image_text._place) else "cpu"
    )
    file = folder / "timing.csv"
    with file.open("w", encoding="utf-8", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["method", "seconds_per_caption", "captions", "machine", "k"])
        for name, of_method in times.items():
            k = every[name][1]
            seconds = f"{statistics.median(of_method):.6g}"
            rows.writerow([name.split(" ")[0], seconds, len(examples), where, k or ""])
            print(f"{name}: {seconds} s a caption", flush=True)
    print(f"wrote {file}", flush=True)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--captions", type=Path, default=SAMPLE, help="JSON Lines with image_id and caption")
    add("--count", type=int, default=300, help="number of captions (%(default)s)")
    add("--few", type=int, default=40, help="the plain loop's captions per round (%(default)s)")
    add("--rounds", type=int, default=5, help="number of rounds (%(default)s)")
    add("--device", default="cpu", choices=["cpu", "cuda"])
    add("--shapes", default="tiny", choices=("tiny", "paper"), help="model sizes (%(default)s)")
    add("--threads", type=int, help="number of CPU threads")
    add("--only", choices=("batching", "sweeps", "timing"), help="measure only this")
    add("--out", type=Path, help="a folder for timing.csv")
    given = parser.parse_args(argv)
    import torch

    if given.threads:
        torch.set_num_threads(given.threads)
    examples = read(given.captions, given.count)
    print(machine(given.device), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        editor = insertion(given.shapes, given.device, Path(folder))
        if given.only in (None, "batching"):
            compare(editor, examples, given.rounds, min(given.few, len(examples)))
        if given.only in (None, "sweeps"):
            fresh(editor).edit(examples[:20])
            for name in SWEEPS:
                for context in ("sequential", "alone"):
                    sweep(name, editor, examples, given.rounds, context)
        if given.out is not None and given.only in (None, "timing"):
            write_timing(given.out, editor, examples, given.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
