"""Compositional tests: the releases' loops, one item at a time, against benchmark=choice and pairs.

The loops follow SugarCrepe's ``main_eval.py`` (each item opens and transforms its photo, and embeds
it and two captions one by one), Winoground's notebook (four calls of both towers for each pair) and
BiVLC's ``CLIP_utils.evaluate_BiVLC`` (each of two photos and two captions once). Loops and ours use
the same model, JPEGs and transform, and are timed from the first byte read to the last decision.
Ours reads the released layout through an index; making the index is timed separately. All decisions
must be the same, and all scores to 2e-5. Like SugarCrepe, this set has 4.8 items per photo; all
captions are distinct. Rounds are interleaved in alternating order.

``shared`` is the time of a second set on the same photos with kept embeddings.

    python benchmarks/compositional.py
    python benchmarks/compositional.py --quick       # a quick check that it runs
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation import photographs
from generation import interval, machine

if TYPE_CHECKING:
    import numpy as np

    from cfaug.data.index import Index

ITEMS_A_PHOTO = 4.8
SPLITS = ("add_obj", "add_att", "replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att")
CLOSE = 2e-5


@dataclass(frozen=True)
class Laid:
    """The sets on disk, and the items that the loops iterate over.

    Attributes:
        choice: the folder in SugarCrepe's layout; ``entries`` are its items in the order of our
            index.
        pairs: the folder in Winoground's older layout; ``examples`` are its lines.
    """

    choice: Path
    entries: Sequence[dict[str, str]]
    pairs: Path
    examples: Sequence[dict[str, Any]]


def captions() -> list[str]:
    """Return distinct captions in words that the tiny model knows."""
    from cfaug.core.rng import generator
    from cfaug.worlds.shapescapes.settings import (
        COLOURS,
        PLACES,
        SUBJECTS,
        CaptionWording,
        Factors,
        caption,
    )

    every = [Factors(*factors) for factors in itertools.product(SUBJECTS, COLOURS, PLACES)]
    first = [caption(factors, CaptionWording(background=False)) for factors in every]
    second = [caption(factors, CaptionWording()) for factors in every]
    texts = list(dict.fromkeys(f"{a} and {b}" for a in set(first) for b in second))
    texts.sort()
    return [texts[i] for i in generator(0, "captions").permutation(len(texts))]


def lay_out(folder: Path, items: int, pairs: int, side: int) -> Laid:
    """Write SugarCrepe's lists and photos, and Winoground's."""
    texts = iter(captions())
    count = max(round(items / ITEMS_A_PHOTO), 2)
    photos = [photo.images["0"] for photo in photographs(max(count, 2 * pairs), 1, side)]
    choice = folder / "sugarcrepe"
    (choice / "val2017").mkdir(parents=True)
    for number, content in enumerate(photos[:count]):
        (choice / "val2017" / f"{number + 1:012d}.jpg").write_bytes(content)
    lists: dict[str, dict[str, dict[str, str]]] = {split: {} for split in SPLITS}
    for number in range(items):
        entry = {
            "filename": f"{number % count + 1:012d}.jpg",
            "caption": next(texts), "negative_caption": next(texts),
        }  # fmt: skip
        lists[SPLITS[number % len(SPLITS)]][str(number)] = entry
    for split, listed in lists.items():
        (choice / f"{split}.json").write_text(json.dumps(listed), encoding="utf-8")
    other = folder / "winoground"
    (other / "images").mkdir(parents=True)
    examples = []
    for number in range(pairs):
        example: dict[str, Any] = {"id": number, "collapsed_tag": "Object", "tag": "Noun"}
        for i in (0, 1):
            name = f"ex_{number}_img_{i}"
            content = photos[2 * number + i]
            (other / "images" / f"{name}.jpg").write_bytes(content)
            example |= {f"image_{i}": name, f"caption_{i}": next(texts)}
        examples.append(example)
    (other / "examples.jsonl").write_text(
        "\n".join(map(json.dumps, examples)) + "\n", encoding="utf-8"
    )
    entries = [entry for listed in lists.values() for entry in listed.values()]
    return Laid(choice, entries, other, examples)


class Loops:
    """The releases' loops; ``embed_*`` are open_clip's ``encode_*(normalize=True)``."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def embed_text(self, text: str) -> Any:
        """Return a caption's embedding of unit length, (1, dim)."""
        from torch.nn.functional import normalize

        return normalize(self.model.encode_text(self.model.tokenize([text])), dim=-1)

    def embed_image(self, file: Path) -> Any:
        """Return a photo's embedding of unit length, (1, dim)."""
        import torch
        from PIL import Image
        from torch.nn.functional import normalize

        image = Image.open(io.BytesIO(file.read_bytes())).convert("RGB")
        pixels = torch.from_numpy(self.model.transform(image)[None].copy())
        pixels = pixels.to(self.model.log_scale.device)
        return normalize(self.model.encode_image(pixels), dim=-1)

    def sugarcrepe(self, laid: Laid) -> np.ndarray:
        """Return the scores of the true and the false caption, (items, 2)."""
        import numpy as np
        import torch

        scores = []
        for entry in laid.entries:
            with torch.no_grad():
                true, false = (self.embed_text(entry[k]) for k in ("caption", "negative_caption"))
                image = self.embed_image(laid.choice / "val2017" / entry["filename"])
                scores.append([(true @ image.t()).item(), (false @ image.t()).item()])
        return np.array(scores)

    def winoground(self, laid: Laid) -> np.ndarray:
        """Return scores (pairs, captions, images), each by a call of both towers."""
        import numpy as np
        import torch

        scores = np.empty((len(laid.examples), 2, 2))
        for number, example in enumerate(laid.examples):
            for i, j in itertools.product((0, 1), repeat=2):
                with torch.no_grad():
                    image = self.embed_image(laid.pairs / "images" / f"{example[f'image_{j}']}.jpg")
                    text = self.embed_text(example[f"caption_{i}"])
                    scores[number, i, j] = (text @ image.t()).item()
        return scores

    def bivlc(self, laid: Laid) -> np.ndarray:
        """Return scores (pairs, captions, images), embedding photos and captions once per pair."""
        import numpy as np
        import torch

        scores = np.empty((len(laid.examples), 2, 2))
        for number, example in enumerate(laid.examples):
            with torch.no_grad():
                images = [
                    self.embed_image(laid.pairs / "images" / f"{example[f'image_{j}']}.jpg")
                    for j in (0, 1)
                ]
                texts = [self.embed_text(example[f"caption_{i}"]) for i in (0, 1)]
                for i, j in itertools.product((0, 1), repeat=2):
                    scores[number, i, j] = (texts[i] @ images[j].t()).item()
        return scores


def forget() -> None:
    """Discard decoded pixels of earlier rounds."""
    from cfaug.evaluation import inference

    inference._KEPT = inference._Kept()


def ask_choice(model: Any, index: Index) -> Any:
    """Run ``benchmark=choice`` without the blind rows, which the loops lack."""
    from cfaug.evaluation.choices.caption_choice import CaptionChoice

    return CaptionChoice(name="sugarcrepe", blind=None).use(index).run(model)


def ask_pairs(model: Any, index: Index) -> Any:
    """Run ``benchmark=pairs benchmark.details=true``."""
    from cfaug.evaluation.choices.pairs import PairMatching

    return PairMatching(name="winoground", details=True).use(index).run(model)


def check_choice(scores: np.ndarray, evaluation: Any) -> None:
    """Compare every item with the loop's, including SugarCrepe's rule for ties."""
    import numpy as np

    ours = np.stack([evaluation.items["text 0"], evaluation.items["text 1"]], axis=1)
    assert np.abs(ours - scores).max() < CLOSE, np.abs(ours - scores).max()
    assert (evaluation.items["accuracy"] == (scores[:, 0] > scores[:, 1])).all()


def check_pairs(sim: np.ndarray, evaluation: Any) -> None:
    """Compare all scores of every pair with the loop's."""
    import numpy as np

    text = (sim[:, 0, 0] > sim[:, 1, 0]) & (sim[:, 1, 1] > sim[:, 0, 1])
    image = (sim[:, 0, 0] > sim[:, 0, 1]) & (sim[:, 1, 1] > sim[:, 1, 0])
    for i, j in itertools.product((0, 1), repeat=2):
        assert np.abs(evaluation.items[f"text {i} image {j}"] - sim[:, i, j]).max() < CLOSE
    for name, hits in (("text_score", text), ("image_score", image), ("group_score", text & image)):
        assert (evaluation.items[name] == hits).all(), name


def spent(work: Callable[[], Any]) -> tuple[tuple[float, float], Any]:
    """Return the wall-clock and processor seconds of a call, and its result."""
    clock, processor = time.perf_counter(), time.process_time()
    result = work()
    return (time.perf_counter() - clock, time.process_time() - processor), result


def measure(laid: Laid, indexes: Sequence[Index], model: Any, rounds: int) -> dict[str, Any]:
    """Return the seconds of the loops and of ours in each round, by name."""
    loops, (choice, pairs) = Loops(model), indexes
    contests = {
        "SugarCrepe": (loops.sugarcrepe, ask_choice, choice, check_choice),
        "Winoground": (loops.winoground, ask_pairs, pairs, check_pairs),
        "BiVLC": (loops.bivlc, ask_pairs, pairs, check_pairs),
    }
    seconds: dict[str, Any] = {name: ([], []) for name in contests}
    for number in range(rounds):
        for name, (loop, ask, index, check) in contests.items():
            forget()
            ways = [lambda loop=loop: loop(laid), lambda ask=ask, index=index: ask(model, index)]
            order = [0, 1] if number % 2 == 0 else [1, 0]
            done = {way: spent(ways[way]) for way in order}
            check(done[0][1], done[1][1])
            for way in (0, 1):
                seconds[name][way].append(done[way][0])
    return seconds


def measure_shared(index: Index, model: Any, folder: Path) -> tuple[float, float]:
    """Return the seconds of a set, and of a second one on the same photos with kept embeddings."""
    from cfaug.evaluation.cached_model import CachedEncoder

    forget()
    cached = CachedEncoder(lambda: model, "weights", "settings", folder, 2**30)
    (first, _), _ = spent(lambda: ask_choice(cached, index))
    forget()
    again = CachedEncoder(lambda: model, "weights", "settings", folder, 2**30)
    (second, _), _ = spent(lambda: ask_choice(again, index))
    return first, second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=600)
    parser.add_argument("--pairs", type=int, default=150)
    parser.add_argument("--side", type=int, default=240, help="shorter side of the photos")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--weights", default="zoo:clip-0")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        args.items, args.pairs, args.rounds = 60, 12, 1
    import torch

    from cfaug.data.index import open_index
    from cfaug.models.specs import HFClip

    torch.set_num_threads(args.threads)
    model = HFClip(args.weights).load().eval().to(args.device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        laid = lay_out(folder, args.items, args.pairs, args.side)
        (scan, _), indexes = spent(
            lambda: [open_index(source, folder / "cache") for source in (laid.choice, laid.pairs)]
        )
        seconds = measure(laid, indexes, model, args.rounds)
        first, second = measure_shared(indexes[0], model, folder / "features")
    print(machine(args.device))
    print(f"{args.items} items, {args.pairs} pairs, photos of {args.side} px, {args.weights}")
    print("| set | loop, s | ours, s | ours is faster by | loop, CPU s | ours, CPU s | by |")
    print("|---|---|---|---|---|---|---|")
    for name, (loop, ours) in seconds.items():
        cells = []
        for kind in (0, 1):
            loop_seconds, our_seconds = ([both[kind] for both in way] for way in (loop, ours))
            ratios = [a / b for a, b in zip(loop_seconds, our_seconds, strict=True)]
            cells += [
                f"{statistics.median(loop_seconds):.2f}", f"{statistics.median(our_seconds):.3f}",
                interval(ratios),
            ]  # fmt: skip
        print(f"| {name} | {' | '.join(cells)} |")
    print(f"scanning both sets for the first time: {scan:.2f} s")
    print(f"shared: the first set {first:.3f} s, a second on the same photos {second:.3f} s")


if __name__ == "__main__":
    main()
