"""What a run tells others: its model card.

Training writes it with the checkpoint, and evaluation writes it again when there are results,
unless somebody edited it. The same files give the same bytes. The wording is in ``templates``:
every card has ``begin.md`` and ``end.md``, and one of the others between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cfaug.core import cards
from cfaug.core.cards import CARD, Card, code, number
from cfaug.core.safety.safe_loading import ADAPTER, read_json
from cfaug.core.types import ENTAILMENT
from cfaug.models.checkpoints import CLASS_NAMES
from cfaug.models.lora import BASE
from cfaug.report.checkpoint_tables import MetricChange, sentences
from cfaug.report.page import Measure
from cfaug.report.records import read_config, read_run
from cfaug.report.results import RESULTS, Result, read_results

TEMPLATES = Path(__file__).parent / "templates"
OPEN_CLIP = "open_clip_config.json"
LONGEST_NAME = 96
"""Most characters of a repository's name on the Hub."""
HOW = (
    "optim.lr", "optim.weight_decay", "optim.schedule", "optim.warmup",
    "optim.layer_decay", "data.batch_size", "trainer.accumulate_grad_batches",
    "trainer.micro_batch_size", "data.pairs_in_batch", "data.negatives", "data.plan", "data.split",
    "trainer.precision", "trainer.gradient_clip", "trainer.early_stopping", "trainer.ema_decay",
    "trainer.checkpoint", "trainer.limit_train_batches", "trainer.gradient_checkpointing",
    "trainer.deterministic",
)  # fmt: skip
"""The settings that readers look for; the run's config.yaml has all."""
KINDS: dict[str, tuple[str, str | None]] = {
    "edits": ("text-generation", "text-generation"),
    "entailment": ("visual-entailment", None),  # the Hub has no such task
    "labels": ("image-classification", "image-classification"),
    "questions": ("visual-question-answering", "visual-question-answering"),
    "pairs": ("image-text", "zero-shot-image-classification"),
}
"""The tag of each kind of run, and the Hub's name of its task, by the name of the template."""
TOLD = (
    "experiment", "arm", "seed", "data_seed", "steps", "counts", "identity", "evaluation",
    "classes", "questions",
)  # fmt: skip
"""The entries of a record that templates read; they are equal for all runs of a command."""
CAPTIONED = {
    "neutral": " (each called by its set's neutral prompt)",
    "shuffled": " (with the captions of each set permuted among its images)",
}
"""The descriptions of counterfactual examples that do not have their own captions."""
MEMBERS = {
    "singles": "single images of the counterfactual source",
    "one": "one member of each counterfactual set",
}
"""The descriptions of counterfactual examples by the value of ``data.counterfactual_members``."""
ORIGINALS = {
    "none": "originals of counterfactuals, which took no part",
    "text": "originals of counterfactuals, whose captions were wrong answers",
    "image": "originals of counterfactuals, whose images were wrong answers",
}
"""The descriptions of counterfactual examples by the value of ``data.negatives``."""
HUB_DATA = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)")


def write_card(
    folder: Path, changes: Sequence[MetricChange] = (), threshold: float | None = None
) -> Path | None:
    """Write the card of a finished run into its checkpoint, whole or not at all.

    Args:
        changes: the watched metrics before and after training (``cfaug.report.checkpoint_tables``).
        threshold: the fall beyond which a metric is mentioned; ``None`` mentions none.

    Returns:
        The path of an edited card, which was kept; ``None`` if the card was written, or if the run
        has no checkpoint of its own: a link may lead to a folder with somebody's README.md.
    """
    checkpoint = folder / "checkpoint"
    if not checkpoint.is_dir() or checkpoint.is_symlink():
        return None
    card = model_card(folder, changes, threshold)
    return None if cards.write_card(checkpoint / CARD, card) else checkpoint / CARD


def model_card(folder: Path, changes: Sequence[MetricChange], threshold: float | None) -> Card:
    """Return the content of a finished run's card; the arguments are those of ``write_card``."""
    checkpoint = folder / "checkpoint"
    record, config = read_run(folder).record, cards.public_settings(read_config(folder))
    rows = read_results(folder / RESULTS) if (folder / RESULTS).exists() else []
    kind, base = _kind(record), _base(config)
    target = re.sub(r"[^\w.]", "", str(config.get("model", {}).get("_target_")))
    plain = all(Measure(row.unit).is_fraction for row in rows)
    questions, counts = record.get("questions") or {}, record.get("counts") or {}
    metadata = _metadata(checkpoint, record, config, rows)
    data = config.get("data", {})
    counterfactuals = MEMBERS.get(data.get("counterfactual_members", ""), "counterfactual")
    counterfactuals += CAPTIONED.get(data.get("counterfactual_captions", ""), "")
    sources = [
        {
            "role": role,
            "count": counts.get(role, 0),
            "share": _share(record, role),
            "name": cards.public_name(str(data.get(role))) if counts.get(role, 0) else "",
            "digest": (record.get("identity") or {}).get(f"content.{role}") or "",
        }
        for role in ("real", "counterfactual")
    ]
    values = {
        "run": {name: record[name] for name in TOLD if name in record},
        "model_name": _model_name(record, config),
        "base": base,
        "library": metadata["library_name"],
        "architecture": _class(checkpoint, config),
        "module": target.rpartition(".")[0],
        "spec": target.rpartition(".")[2],
        "is_adapter": (checkpoint / BASE).exists(),
        "labels": record.get("labels", ENTAILMENT),
        "kinds": sorted({*questions.get("train", ()), *questions.get("validation", ())}),
        "edits": data.get("edits"),
        "counterfactuals": ORIGINALS.get(data.get("negatives", ""), counterfactuals),
        "share": _share(record, "counterfactual"),
        "sources": sources,
        "settings": list(_settings(record, config)),
        "unit": ", %" if plain else "",
        "results": list(_results(rows, changes, plain)),
        "forgetting": sentences(changes, threshold),
    }
    templates = [TEMPLATES / f"{name}.md" for name in ("begin", kind, "end")]
    return Card("ModelCard", metadata, templates, values)


def _kind(record: Mapping[str, Any]) -> str:
    """Return the name of the template for a run of this record."""
    if "edits" in (record.get("counts") or {}):
        return "edits"
    kinds = {"labels": "labels", "classes": "entailment", "questions": "questions"}
    return next((kind for entry, kind in kinds.items() if entry in record), "pairs")


def _base(config: Mapping[str, Any]) -> str:
    """Return the initial model: a Hub id, a folder, or an architecture and its tag."""
    model = config.get("model", {})
    words = [model.get(name) for name in ("architecture", "weights")]
    return " ".join(cards.public_name(str(word)) for word in words if word) or "unknown"


def _model_name(record: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return ``model_name``, or a name of the initial model, the arm and the seed."""
    if config.get("model_name"):
        return str(config["model_name"])
    words = [_base(config).split("/")[-1], record.get("experiment"), record.get("arm")]
    named = [str(word) for word in words if word not in (None, "main", "default")]
    seed = f"-seed-{record.get('seed')}"
    name = re.sub(r"[^\w.=-]+", "-", "-".join(named))[: LONGEST_NAME - len(seed)]
    return name.strip("-.") + seed


def _base_on_hub(config: Mapping[str, Any], library: str) -> str | None:
    """Return the Hub's name of the initial model; ``None`` if none is known."""
    model, base = config.get("model", {}), _base(config)
    if library == "timm" and "/" not in base and not Path(base).exists():
        import timm

        return f"timm/{base}" if timm.is_model(base.partition(".")[0]) else None
    if model.get("architecture") and library == "open_clip":
        import open_clip

        tag = open_clip.get_pretrained_cfg(str(model["architecture"]), str(model["weights"]))
        return "/".join(tag.get("hf_hub", "").split("/")[:2]) or None
    return base if re.fullmatch(r"\w[\w.-]*/[\w.-]+", base) and not Path(base).exists() else None


def _metadata(
    checkpoint: Path, record: Mapping[str, Any], config: Mapping[str, Any], rows: Sequence[Result]
) -> dict[str, Any]:
    """Return the metadata that the Hub reads."""
    tag, task = KINDS[_kind(record)]
    libraries = {ADAPTER: "peft", OPEN_CLIP: "open_clip", CLASS_NAMES: "torchvision"}
    library = next((libraries[n] for n in libraries if (checkpoint / n).exists()), "transformers")
    if "architecture" in _read_config(checkpoint):
        library = "timm"
    sources = [str(config.get("data", {}).get(role)) for role in ("real", "counterfactual")]
    datasets = dict.fromkeys(name[1] for source in sources if (name := HUB_DATA.match(source)))
    results = [
        {
            "task": {"type": task or tag},
            "dataset": {"name": row.cell[0], "type": row.cell[0]},
            "metrics": [{"type": row.metric, "value": row.value}],
        }
        for row in rows
    ]
    index = [{"name": _model_name(record, config), "results": results}]
    return {
        "base_model": _base_on_hub(config, library),
        "datasets": list(datasets) or None,
        "library_name": library,
        "pipeline_tag": task,
        "tags": ["cfaug", "counterfactual", tag],
        "model-index": index if results else None,
    }


def _read_config(checkpoint: Path) -> dict[str, Any]:
    file = checkpoint / "config.json"
    content = read_json(file) if file.exists() else None
    return content if isinstance(content, dict) else {}


def _class(checkpoint: Path, config: Mapping[str, Any]) -> str:
    """Return the class that transformers' config names, or torchvision's architecture."""
    if (checkpoint / CLASS_NAMES).exists():
        return re.sub(r"\W", "", str(config.get("model", {}).get("architecture")))
    named = _read_config(checkpoint).get("architectures")
    first = str(named[0]) if isinstance(named, list) and named else ""
    return first if first.isidentifier() else "AutoModel"


def _share(record: Mapping[str, Any], role: str) -> str:
    counts = record.get("counts") or {}
    return f"{100 * counts.get(role, 0) / max(1, counts.get('total', 0)):.1f}"


def _settings(record: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings of the training: names, and values in Markdown."""
    identity, versions = (record.get("identity") or {}), (record.get("versions") or {})
    yield from ((name, code(record.get(name))) for name in ("seed", "steps"))
    best = (record.get("best") or {}).get("step")
    if best is not None:
        yield "weights of step", f"{code(best)}, the lowest validation loss"
    yield from ((name, code(identity[name])) for name in HOW if identity.get(name) is not None)
    groups = {**config, "callbacks": (config.get("trainer") or {}).get("callbacks")}
    for group in ("tuning", "loss", "callbacks"):
        if groups.get(group):
            yield group, code(json.dumps(groups[group], sort_keys=True))
    if record.get("parameters"):
        trained, total = (number(record["parameters"][name]) for name in ("trained", "total"))
        yield "trained parameters", f"{trained} of {total}"
    yield "initial weights, sha256", code(identity.get("content.weights"))
    yield "config_hash", code(record.get("config_hash"))
    names = ("cfaug", "torch", "transformers", "open_clip_torch")
    yield "versions", code(", ".join(f"{n} {versions[n]}" for n in names if n in versions))


def _results(
    rows: Sequence[Result], changes: Sequence[MetricChange], plain: bool
) -> Iterator[dict[str, Any]]:
    """Yield a row for each result; cells have units unless all values are fractions."""
    by_cell = {(change.benchmark, change.metric): change for change in changes}
    for row in rows:
        measure, change = Measure(row.unit, row.better), by_cell.get(row.cell)
        unit = "" if plain else f" {measure.sign}"
        yield {
            "benchmark": row.cell[0],
            "metric": row.metric,
            "n": row.n,
            "value": f"{measure.text(row.value)}{unit}",
            "before": "" if change is None else f"{measure.text(change.before)}{unit}",
            "change": "" if change is None else measure.difference(change.difference, 2),
        }
