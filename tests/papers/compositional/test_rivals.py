"""The rivals as experiments, and real pairs chosen by how much their words matter."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.types import Example, Images
from cfaug.data.shards.shards import read_scores, read_sets
from cfaug.editing.sentence import TextBlobTagger
from cfaug.models.specs import HFClip
from cfaug.papers.compositional.sensitivity import BestShare, NonceScorer, NonceWords
from tests.data.compositional import trohn_img, trohn_text
from tests.data.making import noise_image
from tests.models import tiny
from tests.papers.compositional.test_docs_compositional import PAGE, TRAINED, WORLD
from tests.report.example import picture
from tests.run.conftest import commands_of, compose, output_of, refusal

PUBLISHED = {
    "negclip": (1e-6, 0.2, 256, 5),
    "trohn": (1e-6, 0.1, 400, 10),
    "trohn_img": (1e-6, 0.1, 800, 10),  # of pairs 400, whose two images are a row each
    "ce_clip": (5e-6, 0.1, 1512, 10),
}
SHAPES = ["ball", "cube", "star", "cone", "heart", "ring"]


@pytest.mark.parametrize("rival", PUBLISHED)
def test_a_rival_has_its_published_settings_at_the_papers_scale_alone(rival):
    config = compose("train", f"experiment={rival}", "scale=paper")
    optim, trainer, data = (config[name] for name in ("optim", "trainer", "data"))
    said = (optim["lr"], optim["weight_decay"], data["batch_size"], trainer["max_epochs"])
    assert said == PUBLISHED[rival]
    assert (optim["betas"], optim["eps"]) == ([0.9, 0.98], 1e-6)
    assert (optim["schedule"], optim["warmup"], optim["decay_rule"]) == (
        "cosine", 50, "matrices",
    )  # fmt: skip
    assert (trainer["max_steps"], trainer["gradient_clip"]) == (None, None)
    assert config["model"]["weights"] == "openai/clip-vit-base-patch32"
    assert config["loss"]["same_image"] == "negative"
    assert data["real"] is None
    assert data["negatives"] == ("both" if rival == "trohn_img" else "text")
    small = compose("train", f"experiment={rival}")
    assert small["model"]["weights"] == "zoo:clip-things"
    assert small["optim"]["lr"] == 1.5e-3
    assert (small["name"], small["arm"]) == (config["name"], config["arm"]) == ("rivals", rival)


def lay_negclip(folder):
    """Lay out six photos and their list in the form of NegCLIP's release."""
    (folder / "coco/val2014").mkdir(parents=True)
    lines = ["\ttitle\tfilepath\tneg_caption\tneg_image"]
    for number, shape in enumerate(SHAPES):
        file = f"coco/val2014/COCO_val2014_{number:012}.jpg"
        (folder / file).write_bytes(picture(SHAPES[number % 3], "red"))
        wrong = f"['A grass on the red {shape} .', 'A {shape} red on the grass .']"
        if not number:  # as their script writes a caption with an apostrophe
            wrong = f'"[""A grass on the {shape} \'s red .""]"'
        lines.append(f"{number}\tA red {shape} on the grass.\t{file}\t{wrong}\t[1, 2]")
    (folder / "train_neg_clip.tsv").write_text("\n".join(lines) + "\n")


def lay_ce_clip(folder):
    folder.mkdir(parents=True)
    lines = ["image,caption,neg_caption"]
    for number, shape in enumerate(SHAPES):
        (folder / f"{number}.png").write_bytes(picture(SHAPES[number % 3], "red"))
        wrong = [f"a {kind} {shape}" for kind in ("blue", "green", "pink", "black")[: 1 + number]]
        listed = ", ".join(f'""{text}""' for text in wrong)
        lines.append(f'{number}.png,a red {shape},"[{listed}]"')
    (folder / "captions.csv").write_text("\n".join(lines) + "\n")


LAID = {
    "negclip": lay_negclip,
    "trohn_text": trohn_text,
    "trohn_img": trohn_img,
    "ce_clip": lay_ce_clip,
}
FOLDERS = {"negclip": "negclip", "trohn": "trohn_text", "trohn_img": "trohn_img",
           "ce_clip": "ce_clip"}  # fmt: skip


PAPER = [
    "data.batch_size=4", "trainer.max_steps=2", "trainer.progress=false", "optim.warmup=0",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("rival", PUBLISHED)
def test_a_rival_is_trained_on_shapescapes_and_on_its_own_list(
    rival, tmp_path, monkeypatch, script
):
    monkeypatch.chdir(tmp_path)
    everywhere, dry, plain = (words for _, words in commands_of(PAGE)[11:14])
    assert "dry_run=true" in dry
    assert all(f"experiment={','.join(PUBLISHED)}" in words for words in (everywhere, dry))
    words = [f"experiment={rival}", *WORLD, *TRAINED, "trainer.max_steps=2"]
    output_of(script("train"), words)
    [run] = (tmp_path / "runs" / "rivals").glob("*/seed=107/checkpoint/model.safetensors")
    assert run.parent.parent.parent.name.startswith(rival)
    LAID[FOLDERS[rival]](tmp_path / "data" / FOLDERS[rival])
    model = f"model.weights={tiny.save_clip(tmp_path / 'weights')}"
    output_of(script("train"), [f"experiment={rival}", "scale=paper", model, *PAPER])
    if rival == "negclip":
        output_of(script("train"), [*plain, model, *PAPER])
    runs = {run.name for run in (tmp_path / "runs/paper/rivals").iterdir()}
    assert len(runs) == 1 + (rival == "negclip")
    assert all((run / "seed=0/checkpoint/model.safetensors").exists()
               for run in (tmp_path / "runs/paper/rivals").iterdir())  # fmt: skip


@pytest.mark.parametrize("rival", PUBLISHED)
def test_a_dry_run_says_which_data_are_missing(rival, tmp_path, monkeypatch, script):
    monkeypatch.chdir(tmp_path)
    words = [f"experiment={rival}", "scale=paper", "dry_run=true"]
    missing = refusal(script("train"), words)
    assert f"{tmp_path}/data/{FOLDERS[rival]}" in missing


@pytest.mark.parametrize("negatives", ["both", "image"])
def test_a_loss_of_wrong_captions_without_any_is_refused(negatives, tmp_path, monkeypatch, script):
    monkeypatch.chdir(tmp_path)
    words = [
        "experiment=ce_clip", f"data.negatives={negatives}", *WORLD, *TRAINED, "dry_run=true",
    ]  # fmt: skip
    said = refusal(script("train"), words)
    assert "loss.intra_modal=0.3 compares an example's caption with its wrong ones" in said
    assert "data.negatives=text" in said


# recipe=select_real


def example(text, key="a"):
    return Example(key, key, (text,))


def test_every_content_word_is_replaced_alone_and_the_caption_is_kept():
    [edited] = NonceWords(TextBlobTagger()).edit([example("A red ball of an old cube on a beach")])
    [proposal] = edited.proposals
    assert (proposal.texts, proposal.edits) == (("A red ball of an old cube on a beach",), (None,))
    probes = proposal.extra["probes"]
    kinds = {probe["word"]: probe["kind"] for probe in probes}
    assert kinds == {
        "red": "attribute", "ball": "object", "old": "attribute", "cube": "object",
        "on": "relation", "beach": "object",
    }  # fmt: skip
    words = proposal.texts[0].split()
    for probe in probes:
        changed = [
            (before, after)
            for before, after in zip(words, probe["text"].split(), strict=True)
            if before != after
        ]
        assert {before for before, _ in changed} <= {probe["word"], "an"}
        assert ("an", "a") in changed or probe["word"] != "old"
    again = NonceWords(TextBlobTagger()).edit([example(proposal.texts[0])])
    assert again[0].proposals[0].extra == proposal.extra


def test_a_caption_without_such_a_word_makes_no_pair():
    assert NonceWords(TextBlobTagger()).edit([example("of the")])[0].proposals == ()


def test_the_score_is_the_mean_loss_of_cosine(tmp_path):
    """Against the encoder itself, one image and one text at a time."""
    spec = HFClip(str(tiny.save_clip(tmp_path / "weights")))
    scorer = NonceScorer(spec, preprocessing="standard", device="cpu")
    [edited] = NonceWords(TextBlobTagger()).edit([example("a red ball on the grass")])
    [proposal] = edited.proposals
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    [scores] = scorer.score([proposal], [Images((pixels,), (0,))])
    encoder = spec.load().eval()

    def slow(text):
        with torch.no_grad():
            seen = encoder.encode_image(
                torch.tensor(np.array(encoder.transform(_pil(pixels))))[None]
            )
            said = encoder.encode_text(encoder.tokenize([text]))
        a, b = seen[0].double().numpy(), said[0].double().numpy()
        return float(a @ b / math.sqrt((a @ a) * (b @ b)))

    falls = [slow(proposal.texts[0]) - slow(probe["text"]) for probe in proposal.extra["probes"]]
    assert len(falls) == 4
    assert scores["sim_0"] == pytest.approx(slow(proposal.texts[0]), abs=2e-3)
    assert scores["sensitivity"] == pytest.approx(sum(falls) / len(falls), abs=2e-3)


def _pil(pixels):
    from PIL import Image

    return Image.fromarray(pixels)


@pytest.mark.slow
def test_the_best_half_of_real_pairs_is_trained_on(tmp_path, monkeypatch, script):
    """The commands of docs/compositional.md, in order."""
    monkeypatch.chdir(tmp_path)
    choose, train, evaluate, of_photos, on_photos = (words for _, words in commands_of(PAGE)[14:19])
    output_of(script("generate"), [*choose, *WORLD, "limit=9"])
    folder = tmp_path / "shards/selected_real"
    scores = {key: of["sensitivity"] for key, of in read_scores(folder).items()}
    assert len(scores) == 9
    assert all(len(made.members) == 1 for made in read_sets(folder))
    ranked = sorted(scores, key=lambda key: (-scores[key], key))
    assert BestShare().choose(folder)["keys"] == sorted(ranked[:4])
    assert BestShare(share=0.01).choose(folder)["keys"] == ranked[:1]
    with pytest.raises(UserError, match=r"recipe\.choice\.score=sim_9 ranks the sets, and"):
        BestShare("sim_9").choose(folder)
    few = ["data.batch_size=2", "trainer.progress=false", "trainer.max_steps=1"]
    assert "experiment=selected_real/random,selected_real/selected" in train
    for arm in ("random", "selected"):
        words = [f"experiment=selected_real/{arm}", *few, "data.size=4", "seed=107"]
        output_of(script("train"), [*words, *(WORLD if arm == "random" else [])])
    (trained,) = (path.name for path in (tmp_path / "runs/selected_real").glob("random,*"))
    assert evaluate == ["name=selected_real", "baseline=random"]
    output_of(script("evaluate"), ["name=selected_real", f"baseline='{trained}'",
                                   "benchmark=shapescapes_compositional",
                                   "benchmark.only=[biased_pairs]"])  # fmt: skip
    dry = ["experiment=selected_real/selected", *few, "data.size=null", "dry_run=json"]
    said = json.loads(output_of(script("train"), dry)[0].splitlines()[-1])
    assert said["counts"]["counterfactual"] == 4  # not the nine that were scored
    (tmp_path / "PHOTOS").mkdir()
    lines = ["image,caption"]
    for number, shape in enumerate(SHAPES):
        (tmp_path / "PHOTOS" / f"{number}.png").write_bytes(noise_image(number))
        lines.append(f"{number}.png,a red {shape} on the grass")
    (tmp_path / "PHOTOS" / "captions.csv").write_text("\n".join(lines) + "\n")
    of_photos = ["force=true" if word == "zoo=paper" else word for word in of_photos]
    output_of(script("generate"), of_photos)
    output_of(script("train"), [*on_photos, *few, "data.validation=0", "trainer.checkpoint=last"])
