"""The model card of each kind of run: what it says, its metadata, and who may change it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jinja2
import pytest
import yaml
from huggingface_hub import ModelCard
from jinja2 import meta

from cfaug.core import cards
from cfaug.report.checkpoint_tables import MetricChange
from cfaug.report.results import Result, append_results
from cfaug.train.card import KINDS, model_card, write_card

COUNTS = {"real": 6, "counterfactual": 4, "total": 10, "validation": 3, "seen": 1200}
OWN = {
    "pairs": {},
    "edits": {
        "counts": {"edits": 20, "captions": 4, "train": 8, "validation": 2, "seen": 32},
        "evaluation": {
            "all": {"answers": 2, "tokens": 1234, "loss": 0.51239, "perplexity": 1.6693}
        },
    },
    "entailment": {
        "classes": {
            "train": {"contradiction": 3, "neutral": 3, "entailment": 4},
            "validation": {"contradiction": 1, "neutral": 1, "entailment": 1},
        },
        "evaluation": {
            "accuracy": 0.75, "precision": 0.7, "recall": 0.65, "f1": 0.6,
            "confusion": [[1, 0, 0], [0, 1, 0], [0, 2, 0]],
        },
    },
    "labels": {
        "labels": ["cat", "dog"],
        "classes": {"train": {"cat": 3, "dog": 7}, "validation": {"cat": 1, "dog": 2}},
        "evaluation": {
            "accuracy": 0.75, "precision": 0.7, "recall": 0.65, "f1": 0.6,
            "confusion": [[1, 0], [1, 2]],
        },
    },
    "questions": {
        "questions": {
            "train": {"basic": 6, "counterfactual": 4}, "validation": {"basic": 3},
            "left_out": {"questions without an answer": 2},
        },
        "evaluation": {"all": {"questions": 3, "accuracy": 0.6667}},
    },
}  # fmt: skip
"""What the record of each kind of run holds beside the rest."""


def write_run(root: Path, kind: str = "pairs", data: str = "shapescapes", **model: object) -> Path:
    """Write what a run's folder holds, but for the weights."""
    folder = root / "main" / "an|arm" / "seed=7"
    (folder / "checkpoint").mkdir(parents=True)
    record = {
        "state": "done", "seed": 7, "data_seed": 8, "steps": 5, "counts": COUNTS,
        "best": {"step": 4}, "parameters": {"trained": 12, "total": 3456},
        "identity": {"optim.lr": 0.1, "content.weights": "ab", "content.real": "cd"},
        "versions": {"cfaug": "0.1.0", "torch": "2"}, "config_hash": "ef", **OWN[kind],
    }  # fmt: skip
    config = {
        "model": {"_target_": "cfaug.models.specs.HFClip", "weights": "org/clip", **model},
        "data": {"real": f"{data}:real", "counterfactual": f"{data}:counterfactual",
                 "edits": "rows.jsonl"},
        "loss": {"weight": 2},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def card_of(folder: Path) -> Path:
    return folder / "checkpoint" / "README.md"


def result(**changes: object) -> Result:
    row = {"run": "main", "arm": "an|arm", "seed": 7, "benchmark": "coco", "metric": "acc1",
           "value": 0.5, "n": 1000, "weights": "ab"}  # fmt: skip
    return Result(**(row | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("pairs", ["`org/clip` fine-tuned on 10 image-text pairs, of which 40.0 % are "
                   "counterfactual, for 5 steps.", "AutoModel.from_pretrained(\"checkpoint\")",
                   "| counterfactual | 4 | 40.0 % | `shapescapes:counterfactual` |  |",
                   "repetitions counted: 1,200. Drawn by data seed 8."]),
        ("edits", ["on 20 edits of 4 captions in 8 answers, for 5 steps.",
                   "| `all` | 2 | 1,234 | 0.5124 | 1.669 |", "`rows.jsonl`, sha256 ",
                   "edits written by a language model are subject to"]),
        ("entailment", ["on 10 hypotheses, of which 40.0 %", "import HFClip",
                        "| train | 4 | 3 | 3 |", "accuracy 75.00 %, macro precision 70.00 %",
                        "| label \\ answer | entailment | neutral | contradiction |\n"
                        "|---|---|---|---|\n| entailment | 1 | 0 | 0 |"]),
        ("labels", ["to name the class of an image, one of 2, on 10 images", "| `dog` | 7 | 2 |",
                    "pipeline(\"image-classification\", \"checkpoint\")", "F1 60.00 %, among"]),
        ("questions", ["on 10 questions about images", "| split | `basic` | `counterfactual` |",
                       "| validation | 3 | 0 |", "Left out of the sets: 2 questions without an "
                       "answer.", "| `all` | 3 | 66.67 |"]),
    ],
)  # fmt: skip
def test_each_kind_of_run_has_its_card(tmp_path, kind, said):
    folder = write_run(tmp_path, kind)
    assert write_card(folder) is None
    text = card_of(folder).read_text()
    for part in (*said, "# clip-an-arm-seed-7", "arm `an\\|arm`, seed 7",
                 "| weights of step | `4`, the lowest",
                 "| trained parameters | 12 of 3,456 |", '| loss | `{"weight": 2}` |',
                 "Not evaluated yet", "This card grants no rights."):  # fmt: skip
        assert part in text, part
    assert "\n\n\n" not in text
    assert all(f"\n\n## {head}\n\n" in text for head in re.findall(r"^## (.*)", text, re.M))
    data = ModelCard.load(card_of(folder)).data
    tag, task = KINDS[kind]
    assert (data.base_model, data.library_name, data.pipeline_tag, data.tags) == (
        "org/clip", "transformers", task, ["cfaug", "counterfactual", tag],
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_of_a_template_is_given(tmp_path, kind):
    """Jinja prints nothing for a name that it does not know."""
    card = model_card(write_run(tmp_path, kind), [], None)
    text = "".join(file.read_text() for file in card.templates)
    named = meta.find_undeclared_variables(jinja2.Environment().parse(text))
    assert named - {"card_data", "code", "number"} <= set(card.values)


def test_a_folder_is_no_base_model_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "clip").mkdir(parents=True)
    folder = write_run(tmp_path)
    write_card(folder)
    assert ModelCard.load(card_of(folder)).data.base_model is None
    assert "`org/clip` fine-tuned on" in card_of(folder).read_text()


def test_the_same_command_gives_the_same_card_at_another_time(tmp_path):
    written = []
    for number in range(2):
        folder = write_run(tmp_path / str(number))
        record = json.loads((folder / "run.json").read_text())
        record |= {"started": f"2026-01-0{number}", "wall_s": number, "peak_rss_mib": number}
        (folder / "run.json").write_text(json.dumps(record))
        write_card(folder)
        written.append(card_of(folder).read_bytes())
    assert written[0] == written[1]


def test_results_are_a_table_and_the_hubs_model_index(tmp_path):
    folder = write_run(tmp_path, data="hf://datasets/org/set/a.tar")
    before = MetricChange("an|arm", 7, "coco", "acc1", 0.25, 0.5, 1000)
    skew = {"metric": "skew", "value": 0.3125, "unit": "nats", "better": "lower"}
    results = [result(), result(metric="acc5", value=0.75), result(by={"edit": "noun"}, **skew)]
    append_results(folder / "results.jsonl", results)
    write_card(folder, [before], 0.02)
    text = card_of(folder).read_text()
    assert "| value | before | change |" in text
    assert "| `coco` | `acc1` | 1,000 | 50.00 % | 25.00 % | +25.00 |" in text
    assert "| `coco` | `acc5` | 1,000 | 75.00 % |  |  |" in text
    assert "| `coco [edit=noun]` | `skew` | 1,000 | 0.3125 nats |  |  |" in text
    assert "- None of 1 watched metrics fell by more than 2 points." in text
    data = ModelCard.load(card_of(folder)).data
    assert data.datasets == ["org/set"]
    assert data.model_name == "clip-an-arm-seed-7"
    assert [(r.dataset_name, r.metric_type, r.metric_value) for r in data.eval_results] == [
        ("coco", "acc1", 0.5), ("coco", "acc5", 0.75), ("coco [edit=noun]", "skew", 0.3125),
    ]  # fmt: skip


def test_a_card_holds_names_and_no_places(tmp_path):
    folder = write_run(tmp_path)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"]["real"] = "/home/anna/photos"
    cached = "/home/anna/.cache/huggingface/hub/models--openai--clip-vit-base-patch32/snapshots/0f3"
    config["model"]["weights"] = cached
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    write_card(folder)
    text = card_of(folder).read_text()
    assert "anna" not in text
    assert str(tmp_path) not in text
    data = ModelCard.load(card_of(folder)).data
    assert data.base_model == "openai/clip-vit-base-patch32"
    assert "\n# clip-vit-base-patch32-an-arm-seed-7\n" in text
    config["loss"] = {"teacher": "/home/anna/models/teacher"}
    config["model_name"] = "me/my-clip"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    write_card(folder)
    assert "anna" not in card_of(folder).read_text()
    assert '"teacher": "teacher"' in card_of(folder).read_text()
    assert "# me/my-clip\n" in card_of(folder).read_text()


LAION = {"architecture": "ViT-B-32", "weights": "laion2b_s34b_b79k"}


@pytest.mark.parametrize(
    ("file", "content", "model", "expected"),
    [
        ("config.json", {"architecture": "resnet50"}, {"weights": "resnet50.a1_in1k"},
         "timm/resnet50.a1_in1k"),
        ("config.json", {"architecture": "resnet50"}, {"weights": "my-own-net"}, None),
        ("open_clip_config.json", {}, LAION, "laion/CLIP-ViT-B-32-laion2B-s34B-b79K"),
        ("open_clip_config.json", {}, {**LAION, "weights": "mine.pt"}, None),
    ],
)  # fmt: skip
def test_names_of_libraries_become_the_hubs(tmp_path, file, content, model, expected):
    folder = write_run(tmp_path)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["model"] = model
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "checkpoint" / file).write_text(json.dumps(content))
    write_card(folder)
    assert ModelCard.load(card_of(folder)).data.base_model == expected


HOSTILE = [
    "---", "a\n---\nb: c", "{{ 7 * 7 }}", "{% raw %}", "`|\n# x", "<script>", "y: [", "é\u2028",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_the_metadata_the_markdown_or_the_template(tmp_path, name):
    plain, hostile = (write_run(tmp_path / str(i)) for i in range(2))
    config = yaml.safe_load((hostile / "config.yaml").read_text())
    config["model_name"] = "mine"
    (plain / "config.yaml").write_text(yaml.safe_dump(config))
    config["data"]["real"] = config["model"]["weights"] = config["loss"] = name
    (hostile / "config.yaml").write_text(yaml.safe_dump(config))
    row = result(benchmark=" ".join(name.split()))
    for folder in (plain, hostile):
        append_results(folder / "results.jsonl", [row])
        write_card(folder)
    said = card_of(hostile).read_text()
    card = ModelCard.load(card_of(hostile))
    assert card.data.eval_results[0].dataset_name == row.benchmark
    assert set(card.data.to_dict()) == set(ModelCard.load(card_of(plain)).data.to_dict()) - {
        "base_model"
    }
    other = card_of(plain).read_text()
    lines = [re.findall(r"^(#.*|\|[^`]*)", text, re.MULTILINE) for text in (said, other)]
    assert lines[0] == lines[1]
    assert cards.code(name) in said


def test_an_edited_card_is_kept_and_named(tmp_path, monkeypatch):
    folder = write_run(tmp_path)
    assert write_card(folder) is None
    card = card_of(folder)
    append_results(folder / "results.jsonl", [result()])
    assert write_card(folder) is None  # as it was written: it gets the results
    assert "| n | value, % | before, % | change |" in card.read_text()
    assert "| `coco` | `acc1` | 1,000 | 50.00 |  |  |" in card.read_text()
    written = card.read_bytes()
    monkeypatch.setattr(cards.Card, "fill", None)  # is not made again of the same
    assert write_card(folder) is None
    assert card.read_bytes() == written
    for edited in (
        written.replace(b"## Use", b"## How to use it"),
        written.replace(b"library_name", b"license: mit\nlibrary_name"),
        b"# My own card\n",
        written[: written.rindex(b"<!--")],
    ):
        card.write_bytes(edited)
        assert write_card(folder) == card
        assert card.read_bytes() == edited
    monkeypatch.undo()
    card.unlink()
    assert write_card(folder) is None
    assert card.read_bytes() == written
