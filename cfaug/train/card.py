"""``checkpoint/README.md``: a model card made from a run's files. No torch.

Training writes it with the checkpoint, and evaluation writes it again when there are results. The
same files give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from cfaug.data.exporters.text import code, number, table
from cfaug.files import write_file
from cfaug.report.forgetting import Change, sentences
from cfaug.report.records import read_config, read_run
from cfaug.report.results import RESULTS, Result, read_results
from cfaug.train import edit_card, entailment_card, question_card
from cfaug.untrusted import read_json

CARD = "README.md"
OPEN_CLIP = "open_clip_config.json"
HOW = (
    "optim.lr", "optim.weight_decay", "optim.schedule", "optim.warmup_steps", "optim.warmup_ratio",
    "optim.layer_decay", "data.batch_size", "trainer.accumulate_grad_batches",
    "trainer.micro_batch_size", "data.pairs_in_batch", "data.negatives", "data.plan", "data.split",
    "trainer.precision", "trainer.gradient_clip", "trainer.early_stopping", "trainer.checkpoint",
)  # fmt: skip
"""Settings a reader looks for; the run's config.yaml has all."""

CAPTIONED = {
    "neutral": " (each called by its set's neutral prompt)",
    "shuffled": " (with the captions of each set permuted among its images)",
}
"""What is said of counterfactual examples that do not have their own captions."""

ORIGINALS = {
    "none": "originals of counterfactuals, which took no part",
    "text": "originals of counterfactuals, whose captions were wrong answers",
    "image": "originals of counterfactuals, whose images were wrong answers",
}
"""What examples of a counterfactual source are where ``data.negatives`` says so."""

LICENCE = (
    "The weights derive from the base model, and its licence goes on to hold. What may be done "
    "with the training images and captions is for their own licences to say: COCO and Flickr30k "
    "photographs belong to those who took them, and images drawn by Stable Diffusion come with the "
    "use restrictions of its licence (CreativeML Open RAIL-M). This card grants nothing."
)


def write_card(
    folder: Path, found: Sequence[Change] = (), threshold: float | None = None
) -> Path | None:
    """Write the card of a finished run into its checkpoint, whole or not at all.

    Args:
        folder: of the run.
        found: watched metrics before and after (``cfaug.report.forgetting``).
        threshold: what a fall must exceed to be named; None names none.

    Returns:
        The card, or None where the run has no checkpoint of its own: a link may lead to a folder
        whose README.md is somebody's.

    Raises:
        UserError: if the run's files cannot be read.
    """
    checkpoint = folder / "checkpoint"
    if not checkpoint.is_dir() or checkpoint.is_symlink():
        return None
    record, config = read_run(folder).record, read_config(folder)
    rows = read_results(folder / RESULTS) if (folder / RESULTS).exists() else []
    own = _parts(checkpoint, record, config)
    lines = [
        *_header(checkpoint, config, own.tag),
        *_heading(record),
        *own.title,
        *own.use,
        *own.data,
        *_training(record, config),
        *_results(rows, found),
        *_forgetting(found, threshold),
        "", "## Licence", "", own.licence,
    ]  # fmt: skip
    card = checkpoint / CARD
    write_file(card, ("\n".join(lines) + "\n").encode())
    return card


@dataclass(frozen=True)
class _Parts:
    """What the card says of one kind of task."""

    tag: str
    title: Iterable[str]
    use: Iterable[str]
    data: Iterable[str]
    licence: str


def _parts(checkpoint: Path, record: Mapping[str, Any], config: Mapping[str, Any]) -> _Parts:
    base = _base(config)
    if edit_card.is_of_edits(record):
        title, use = edit_card.title(base, record), edit_card.use(checkpoint)
        own = edit_card.data(record, config)
        return _Parts("text-generation", title, use, own, edit_card.LICENCE)
    if entailment_card.is_of_entailment(record):
        spec = str(config.get("model", {}).get("_target_"))
        title, use = entailment_card.title(base, record), entailment_card.use(spec, checkpoint)
        own = chain(_data(record, config), entailment_card.results(record))
        return _Parts("visual-entailment", title, use, own, LICENCE)
    if question_card.is_of_questions(record):
        use = question_card.use(str(config.get("model", {}).get("_target_")))
        own = chain(_data(record, config), question_card.results(record))
        title = question_card.title(base, record)
        return _Parts("visual-question-answering", title, use, own, LICENCE)
    title, use = _title(record, config), _loading(checkpoint)
    return _Parts("image-text", title, use, _data(record, config), LICENCE)


def _base(config: Mapping[str, Any]) -> str:
    """Name what the run started from: a Hub id, a folder, or an architecture and its tag."""
    model = config.get("model", {})
    words = [model.get(name) for name in ("name_or_path", "architecture", "pretrained")]
    return " ".join(str(word) for word in words if word) or "unknown"


def _header(checkpoint: Path, config: Mapping[str, Any], tag: str) -> Iterator[str]:
    """Yield the metadata that the Hub reads."""
    library = "open_clip" if (checkpoint / OPEN_CLIP).exists() else "transformers"
    about = {"library_name": library, "tags": ["cfaug", "counterfactual", tag]}
    base = _base(config)
    if base.count("/") == 1 and not base.startswith((".", "/", "zoo:", "local-dir:")):
        about["base_model"] = base.removeprefix("hf-hub:")
    yield "---"
    yield yaml.safe_dump(about, sort_keys=True).rstrip()
    yield "---"


def _heading(record: Mapping[str, Any]) -> Iterator[str]:
    names = (code(record.get("experiment")), code(record.get("arm")))
    yield from ("", f"# {', '.join(names)}, seed {record.get('seed')}", "")


def _title(record: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    counts = record.get("counts", {})
    share = 100 * counts.get("counterfactual", 0) / max(1, counts.get("total", 0))
    if record.get("steps") == 0:
        yield f"The weights of {code(_base(config))}, not fine-tuned: the row before."
    else:
        data = config.get("data", {})
        singles = data.get("counterfactual_members") == "singles"
        what = "single images of the counterfactual source" if singles else "counterfactual"
        what += CAPTIONED.get(data.get("counterfactual_captions"), "")
        what = ORIGINALS.get(data.get("negatives"), what)
        yield (
            f"{code(_base(config))} fine-tuned on {number(counts.get('total', 0))} image-text "
            f"pairs, of which {share:.1f} % are {what}, for {record.get('steps')} steps."
        )


def _loading(checkpoint: Path) -> Iterator[str]:
    yield from ("", "## Use", "", "```python")
    if (checkpoint / OPEN_CLIP).exists():
        yield "import open_clip"
        yield ""
        yield 'name = "local-dir:checkpoint"'
        yield "model, _, preprocess = open_clip.create_model_and_transforms(name)"
        yield "tokenizer = open_clip.get_tokenizer(name)"
    else:
        yield f"from transformers import {_class(checkpoint)}, AutoProcessor"
        yield ""
        yield f'model = {_class(checkpoint)}.from_pretrained("checkpoint")'
        yield 'processor = AutoProcessor.from_pretrained("checkpoint")'
    yield "```"


def _class(checkpoint: Path) -> str:
    """Return the class that transformers' own config names, or the one that looks it up."""
    config = checkpoint / "config.json"
    found = read_json(config) if config.exists() else None
    named = found.get("architectures") if isinstance(found, dict) else None
    first = str(named[0]) if isinstance(named, list) and named else ""
    return first if first.isidentifier() else "AutoModel"


def _data(record: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    counts, identity = record.get("counts", {}), record.get("identity", {})
    total = max(1, counts.get("total", 0))
    yield from ("", "## Training data", "")
    rows = []
    for role in ("real", "counterfactual"):
        count = counts.get(role, 0)
        digest = identity.get(f"content.{role}")
        rows.append([
            role, number(count), f"{100 * count / total:.1f} %",
            code(config.get("data", {}).get(role)) if count else "",
            code(digest) if digest else "",
        ])  # fmt: skip
    yield from table(("source", "examples", "share", "named", "sha256 of the content"), rows)
    yield ""
    if counts.get("held_out"):
        yield (
            f"Held out as a test set: {number(counts.get('held_out_images', 0))} images in "
            f"{number(counts['held_out'])} pairs, by {code('data.holdout')}."
        )
        yield ""
    yield (
        f"Held out for validation: {number(counts.get('validation', 0))}. Examples seen, "
        f"repetitions counted: {number(counts.get('seen', 0))}. "
        f"Drawn by data seed {record.get('data_seed')}."
    )


def _training(record: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    identity = record.get("identity", {})
    rows = [["seed", code(record.get("seed"))], ["steps", code(record.get("steps"))]]
    best = record.get("best") or {}
    if best.get("step") is not None:
        rows.append(["weights of step", f"{code(best['step'])}, the lowest validation loss"])
    rows += [[name, code(identity[name])] for name in HOW if identity.get(name) is not None]
    for group in ("tuning", "loss"):
        if config.get(group):
            rows.append([group, code(json.dumps(config[group], sort_keys=True))])
    if record.get("parameters"):
        rows.append(["trained parameters", _parameters(record["parameters"])])
    rows.append(["initial weights, sha256", code(identity.get("content.weights"))])
    rows.append(["config_hash", code(record.get("config_hash"))])
    versions = record.get("versions", {})
    names = ("cfaug", "torch", "transformers", "open_clip_torch")
    rows.append(["versions", code(", ".join(f"{n} {versions[n]}" for n in names if n in versions))])
    yield from ("", "## Training", "")
    yield from table(("setting", "value"), rows)


def _parameters(counts: Mapping[str, int]) -> str:
    return f"{number(counts['trained'])} of {number(counts['total'])}"


def _results(rows: Sequence[Result], found: Sequence[Change]) -> Iterator[str]:
    yield from ("", "## Results", "")
    if not rows:
        yield "Not evaluated yet: `python evaluate.py` asks the benchmarks and writes them here."
        return
    before = {(change.benchmark, change.metric): change for change in found}
    lines = []
    for row in rows:
        change = before.get(row.cell)
        was = "" if change is None else f"{100 * change.before:.2f}"
        moved = "" if change is None else f"{100 * change.difference:+.2f}"
        cells = [code(row.benchmark), code(row.metric), number(row.n), f"{100 * row.value:.2f}"]
        lines.append([*cells, was, moved])
    yield from table(("benchmark", "metric", "n", "value, %", "before, %", "change"), lines)


def _forgetting(found: Sequence[Change], threshold: float | None) -> Iterator[str]:
    said = sentences(found, threshold)
    if said:
        yield from ("", "## Forgetting", "")
        for line in said:
            yield f"- {line}"
