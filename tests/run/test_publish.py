"""What a finished run hands over: a card that is true, and a checkpoint that others load."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re

import pytest
import torch
import yaml
from PIL import Image

from cfaug.data.shards.shards import read_sets
from cfaug.models.specs import HFClip, OpenClip
from tests.models import tiny
from tests.run.conftest import Place, stderr_of

RUN = ["data.cf_ratio=0.6", "seed=107", "optim.lr=0.05", "optim.warmup=0"]


def card_of(folder):
    return (folder / "checkpoint" / "README.md").read_text()


def as_the_card_says(folder, monkeypatch):
    """Run the card's own lines beside the checkpoint, and return what they made."""
    monkeypatch.chdir(folder)
    [lines] = re.findall(r"```python\n(.*?)```", card_of(folder), re.DOTALL)
    made = {}
    exec(lines, made)
    return made


def pixels():
    draw = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (3, 3, tiny.SIZE, tiny.SIZE), generator=draw, dtype=torch.uint8)


@pytest.mark.slow
@torch.no_grad()
def test_a_run_hands_over_a_card_and_a_checkpoint_of_plain_transformers(place, monkeypatch):
    assert place.train(*RUN, "tuning=lora", "loss=pair_aware", "data.pairs_in_batch=true") == 0
    folder, record = place.folder(), place.record()
    said = card_of(folder)
    header = yaml.safe_load(said.split("---")[1])
    assert header["library_name"] == "transformers"
    assert "base_model" not in header  # zoo:clip-0 is no name of the Hub
    counts, identity = record["counts"], record["identity"]
    share = 100 * counts["counterfactual"] / counts["total"]
    for part in (
        f"fine-tuned on {counts['total']:,} image-text pairs, of which {share:.1f} % are",
        f"| real | {counts['real']:,} | {100 - share:.1f} % | `shapescapes:real` |",
        identity["content.real"], identity["content.counterfactual"], identity["content.weights"],
        record["config_hash"], "Drawn by data seed 108.", "| optim.lr | `0.05` |",
        '"hard_negative_weight": 2.0', '"r": 8', "Not evaluated yet",
    ):  # fmt: skip
        assert part in said, part
    assert 0 < record["parameters"]["trained"] < record["parameters"]["total"] / 5

    message = stderr_of(place.evaluate, "evaluate_initial=true", "forgetting_threshold=0")
    alarm = [line for line in message.splitlines() if line.startswith("forgetting")]
    assert alarm, "this learning rate spoils the model"
    said = card_of(folder)
    assert "Not evaluated yet" not in said
    assert all(line in said for line in alarm)
    rows = re.findall(r"\| `(\w+)` \| `([\w@]+)` \| \d+ \| ([\d.]+) \| ([\d.]+) \| (\S+) \|", said)
    assert {metric for _, metric, *_ in rows} == {"acc1", "image_to_text_R@1", "text_to_image_R@1"}
    for *_, after, before, change in rows:
        assert float(change) == pytest.approx(float(after) - float(before), abs=0.011)
    said = stderr_of(place.evaluate, "evaluate_initial=true", "forgetting_threshold=null")
    assert "forgetting" not in said
    assert "## Forgetting" not in card_of(folder)

    ours = HFClip(str(folder / "checkpoint")).load()
    made = as_the_card_says(folder, monkeypatch)
    inputs = made["processor"](text=["a red ball on the beach"], return_tensors="pt", padding=True)
    plain = made["model"].get_text_features(**inputs).pooler_output
    assert torch.equal(plain, ours.encode_text(ours.tokenize(["a red ball on the beach"])))
    plain = made["model"].get_image_features(pixel_values=ours.normalize(pixels())).pooler_output
    assert torch.equal(plain, ours.encode_image(pixels()))


@pytest.mark.slow
@torch.no_grad()
def test_an_open_clip_run_is_loaded_by_plain_open_clip(place, tmp_path, monkeypatch):
    weights = tiny.save_open_clip(tmp_path / "base")
    assert place.train(*RUN, "model=open_clip", f"weights={weights}") == 0
    folder = place.folder()
    assert yaml.safe_load((folder / "config.yaml").read_text())["model"]["architecture"] is None
    assert "library_name: open_clip" in card_of(folder)
    made = as_the_card_says(folder, monkeypatch)
    plain = made["model"].eval()
    ours = OpenClip(str(folder / "checkpoint")).load()
    images = ours.normalize(pixels())
    assert torch.equal(plain.encode_image(images), ours.encode_image(pixels()))
    texts = made["tokenizer"](["a red ball on the beach"])
    assert torch.equal(plain.encode_text(texts), ours.encode_text({"input_ids": texts}))
    before = OpenClip(str(weights)).load()
    assert not torch.allclose(before.encode_image(pixels()), ours.encode_image(pixels()))
    # The card's preprocessing is the model's own.
    assert made["preprocess"].transforms[0].size == tiny.SIZE


def test_the_card_of_untrained_weights_says_so(place):
    assert place.train("trainer.max_steps=0", "seed=107") == 0
    said = card_of(place.folder())
    assert "not fine-tuned: what the other arms start from." in said


@pytest.mark.slow
def test_no_command_loses_a_card_that_somebody_edited(place, capsys):
    words = ["data.cf_ratio=0", "seed=1", "data.size=40", "trainer.keep_last=true"]
    assert place.train(*words) == 0
    folder = place.folder(seed=1)
    card = folder / "checkpoint" / "README.md"
    edited = f"{card_of(folder)}\nDo not use it for cats.\n"
    card.write_text(edited)
    longer = [*words, "trainer.max_steps=4"]
    for command, more in (
        (place.train, words),
        (place.evaluate, ["benchmark=ood"]),
        (place.train, [*longer, "extend=true"]),
    ):
        capsys.readouterr()
        assert command(*more) == 0
        assert card_of(folder) == edited
        if more != words:
            assert re.search(rf"{re.escape(str(card))}.*remove", capsys.readouterr().err)
    assert place.train(*words, "overwrite=true") == 0
    aside = folder / "edited-README.md"
    assert f"it is kept as {aside}" in capsys.readouterr().err
    assert aside.read_text() == edited
    assert "Not evaluated yet" in card_of(folder)


def tables_of(folder, name):
    """The tables of that name that wait in a run's folder to be sent."""
    files = sorted(folder.glob(f"wandb/offline-run-*/files/media/table/{name}_*.table.json"))
    return [json.loads(file.read_text()) for file in files]


def staged(folder):
    """What waits beside them to be sent, by its hash; the table with images is one of them."""
    contents = [file.read_bytes() for file in folder.glob("wandb/artifacts/staging/*")]
    return {hashlib.sha256(content).hexdigest(): content for content in contents}


def logged_by(folder):
    """The names of what the newest run of a folder logged, as they stand in its file."""
    [file] = (folder / "wandb/latest-run").glob("*.wandb")
    content = file.read_bytes()
    names = (b"train/loss", b"val/loss", b"lr", b"results", b"pairs", b"report")
    return {name for name in names if name in content}


@pytest.mark.slow
def test_weights_and_biases_gets_pairs_and_results(tmp_path, script):
    place = Place(tmp_path / "runs", tmp_path / "shards", script)  # a world no other test draws
    assert place.train("logger=wandb", "data.cf_ratio=0.6", "seed=107") == 0
    folder = place.folder()
    [shown] = tables_of(folder, "pairs")
    files = staged(folder)
    tables = (json.loads(c) for c in files.values() if c.startswith(b'{"_type": "table"'))
    [pairs] = (t for t in tables if t["columns"] == ["set", "example", "caption", "image"])
    assert [row[:3] for row in shown["data"]] == [row[:3] for row in pairs["data"]]
    sets = [row[0] for row in pairs["data"]]
    assert len(set(sets)) == 16
    assert sum(sets.count(name) == 2 for name in set(sets)) >= 15  # whole sets, but for the cut one
    known = {}
    [drawn_by_us] = (tmp_path / "shards").glob("shapescapes-*/counterfactual")
    for pair in read_sets(drawn_by_us):
        for number, member in enumerate(pair.members):
            known[f"{pair.key}_{number}"] = member.text, pair.images[member.image_name]
    for name, example, caption, image in pairs["data"]:
        assert example.startswith(f"{name}_")
        text, data = known[example]
        assert caption == text
        drawn = Image.open(io.BytesIO(files[image["sha256"]])).convert("RGB")
        assert drawn.tobytes() == Image.open(io.BytesIO(data)).convert("RGB").tobytes()

    assert tables_of(folder, "results") == []
    curves = logged_by(folder)
    assert place.evaluate("benchmark=ood") == 0
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    [results] = tables_of(folder, "results")
    assert results["columns"] == ["benchmark", "metric", "value", "n"]
    assert results["data"] == [[r["benchmark"], r["metric"], r["value"], r["n"]] for r in lines]
    [again] = tables_of(folder, "pairs")
    assert again == shown
    # One run of one folder has all of it, and what training wrote is set aside, not removed.
    [run] = folder.glob("wandb/offline-run-*")
    assert (folder / "wandb/latest-run").resolve() == run
    assert len(list(folder.glob("wandb/attempts/offline-run-*"))) == 1
    assert curves <= logged_by(folder)
    assert {b"train/loss", b"results", b"pairs"} <= logged_by(folder)
    assert place.evaluate("benchmark=ood") == 0  # nothing new to say
    assert list(folder.glob("wandb/offline-run-*")) == [run]
    # A second arm makes a table, which each run gets with its pictures.
    assert place.train("logger=wandb", "data.cf_ratio=0", "seed=107", "arm=real") == 0
    assert place.evaluate("benchmark=ood") == 0
    for arm in ("run", "real"):
        [comparison] = tables_of(place.folder(arm), "comparison")
        header, *rows = csv.reader((place.root / "main/table.csv").read_text().splitlines())
        assert comparison["columns"] == header
        assert comparison["data"] == rows
        [page] = place.folder(arm).glob("wandb/offline-run-*/files/media/html/report_*.html")
        assert page.read_text() == (place.root / "main/report.html").read_text()
        assert "<svg" in page.read_text()
