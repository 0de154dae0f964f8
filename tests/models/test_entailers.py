"""Entailers of images: fusion encoders with a head, and models that are asked."""

from __future__ import annotations

import json

import pytest
import torch
from PIL import Image

from cfaug.core import protocols
from cfaug.core.answers import Question
from cfaug.core.errors import UserError
from cfaug.core.types import ENTAILMENT
from cfaug.models.prompts import read_prompt
from cfaug.models.specs import EntailmentLearner
from cfaug.models.task_specs import (
    BridgeTowerEntailment,
    FlavaEntailment,
    PromptedEntailment,
    TextEntailment,
    ViltEntailment,
    VisionLanguage,
)
from tests.models import tiny

FAMILIES = {
    "vilt": ViltEntailment,
    "bridgetower": BridgeTowerEntailment,
    "bridgetower_apart": BridgeTowerEntailment,
    "flava": FlavaEntailment,
}

TEXTS = ["a red ball on the beach", "a cube", "a green star on the grass", "the sand"]
PLAIN = "the {image} on {question} a"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("weights")
    saved = tiny.save_all(shelf, "vilt", "bridgetower", "flava", "llava", "entailer")
    saved["bridgetower_apart"] = tiny.save_bridgetower_apart(shelf / "apart")
    return saved


@pytest.fixture(scope="module")
def trained(folders, tmp_path_factory):
    """Checkpoints with heads that are not as flat as a fresh one."""
    shelf = tmp_path_factory.mktemp("trained")
    for name, spec in FAMILIES.items():
        entailer = spec(str(folders[name])).load_to_train(seed=3)
        with torch.no_grad():
            entailer.model.classifier[3].weight.mul_(50)
        entailer.save(shelf / name)
    return shelf


def plain_logits(folder, name, pixels, texts):
    """The home library's own encoder on each pair alone, and the head by hand."""
    from safetensors.torch import load_file
    from transformers import AutoModel, AutoProcessor

    encoder = AutoModel.from_pretrained(folder).eval()
    processor = AutoProcessor.from_pretrained(folder)
    head = {k: v for k, v in load_file(folder / "model.safetensors").items() if "classifier" in k}
    rows = []
    for image, text in zip(pixels, texts, strict=True):
        shown = Image.fromarray(image.permute(1, 2, 0).numpy())
        with torch.no_grad():
            out = encoder(**processor(images=shown, text=text, return_tensors="pt"))
        pooled = out.multimodal_embeddings[:, 0] if name == "flava" else out.pooler_output
        inner = pooled @ head["classifier.0.weight"].T + head["classifier.0.bias"]
        inner = (inner - inner.mean(-1, keepdim=True)) / (
            inner.var(-1, False, keepdim=True) + 1e-5
        ) ** 0.5
        inner = inner * head["classifier.1.weight"] + head["classifier.1.bias"]
        inner = 0.5 * inner * (1 + torch.erf(inner / 2**0.5))
        rows.append(inner @ head["classifier.3.weight"].T + head["classifier.3.bias"])
    return torch.cat(rows)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_plain_transformers_alone_as_in_a_batch(trained, name):
    entailer = FAMILIES[name](str(trained / name)).load()
    pixels = tiny.pixels(4)
    with torch.no_grad():
        logits = entailer.logits(pixels, TEXTS)
        alone = [entailer.logits(p[None], [t]) for p, t in zip(pixels, TEXTS, strict=True)]
    torch.testing.assert_close(logits, torch.cat(alone), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        logits, plain_logits(trained / name, name, pixels, TEXTS), atol=1e-4, rtol=1e-4
    )
    with torch.no_grad():
        shares = entailer.entail([""] * 4, TEXTS, pixels)
        swapped = entailer.logits(pixels.flip(0), TEXTS)
    torch.testing.assert_close(shares, logits.softmax(-1))
    assert (logits - swapped).abs().max() > 1e-2  # the image counts
    assert isinstance(entailer, protocols.Entailer)
    assert not entailer.training


def test_a_vilt_looks_at_image_and_text_together(trained):
    entailer = ViltEntailment(str(trained / "vilt")).load()
    assert not isinstance(entailer, protocols.EncodesImages)


@pytest.mark.parametrize("name", ["bridgetower", "flava"])
def test_an_image_is_looked_at_once_for_several_hypotheses(trained, name, monkeypatch):
    entailer = FAMILIES[name](str(trained / name)).load()
    assert isinstance(entailer, protocols.EncodesImages)
    pixels = tiny.pixels(4)
    with torch.no_grad():
        whole = entailer.entail([""] * 4, TEXTS, pixels)
        images = entailer.encode_images(pixels)
        monkeypatch.setattr(entailer, "image_states", None)  # not looked at again
        again = entailer.entail_encoded(images, TEXTS)
        second = entailer.entail_encoded(images[:1].expand(2, *images.shape[1:]), TEXTS[:2])
    torch.testing.assert_close(again, whole)
    torch.testing.assert_close(second[:1], whole[:1])


def test_a_vilts_folder_is_one_that_transformers_answers_questions_with(trained):
    from transformers import AutoProcessor, ViltForQuestionAnswering

    folder = trained / "vilt"
    plain = ViltForQuestionAnswering.from_pretrained(folder).eval()
    assert [plain.config.id2label[i] for i in range(3)] == list(ENTAILMENT)
    inputs = AutoProcessor.from_pretrained(folder)(
        images=Image.fromarray(tiny.pixels(1)[0].permute(1, 2, 0).numpy()), text=TEXTS[0],
        return_tensors="pt",
    )  # fmt: skip
    with torch.no_grad():
        expected = plain(**inputs).logits
        logits = ViltEntailment(str(folder)).load().logits(tiny.pixels(1), TEXTS[:1])
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["vilt", "flava"])
def test_a_fresh_head_is_drawn_from_its_seed_alone(folders, tmp_path, name):
    spec = FAMILIES[name](str(folders[name]))
    assert isinstance(spec, EntailmentLearner)
    first, again, other = (spec.load_to_train(seed) for seed in (1, 1, 2))
    head = [entailer.model.classifier.state_dict() for entailer in (first, again, other)]
    assert all(torch.equal(head[0][k], head[1][k]) for k in head[0])
    assert not torch.equal(head[0]["0.weight"], head[2]["0.weight"])
    assert 0.01 < float(head[0]["0.weight"].std()) < 0.03
    with pytest.raises(UserError, match=r"no head.*task=entailment"):
        spec.load()
    with pytest.raises(UserError, match="task=entailment"):
        spec.check_trainable()
    # A head that is there goes on to be trained, whatever the seed.
    first.save(tmp_path / "saved")
    later = FAMILIES[name](str(tmp_path / "saved")).load_to_train(seed=9)
    assert all(torch.equal(head[0][k], v) for k, v in later.model.classifier.state_dict().items())
    assert {file.suffix for file in (tmp_path / "saved").iterdir()} <= {
        ".json", ".safetensors", ".jsonl",
    }  # fmt: skip


def test_another_order_of_labels_is_read_or_told_and_never_guessed(trained, tmp_path):
    import shutil

    ours = ViltEntailment(str(trained / "vilt")).load()
    pixels = tiny.pixels(2)
    with torch.no_grad():
        expected = ours.entail(["", ""], TEXTS[:2], pixels)[:, [2, 0, 1]]
    for number, names in enumerate((("Neutral", "CONTRADICTION", "entailment"), ("LABEL_0",) * 3)):
        foreign = tmp_path / str(number)
        shutil.copytree(trained / "vilt", foreign)
        config = json.loads((foreign / "config.json").read_text())
        config["id2label"] = dict(enumerate(names))
        (foreign / "config.json").write_text(json.dumps(config))
        spec = ViltEntailment(str(foreign))
        if number:
            with pytest.raises(UserError, match=r"LABEL_0.*model\.labels=\["):
                spec.load()
            labels = ("neutral", "contradiction", "entailment")
            spec = ViltEntailment(str(foreign), labels=labels)
        entailer = spec.load()
        with torch.no_grad():
            torch.testing.assert_close(entailer.entail(["", ""], TEXTS[:2], pixels), expected)
        entailer.save(tmp_path / f"{number}-again")
        again = ViltEntailment(str(tmp_path / f"{number}-again")).load()
        assert again.columns == [2, 0, 1]


def test_a_head_for_another_question_is_refused_or_replaced(trained, tmp_path):
    from safetensors.torch import load_file, save_file

    entailer = ViltEntailment(str(trained / "vilt")).load()
    entailer.save(tmp_path / "vqa")
    file = tmp_path / "vqa" / "model.safetensors"
    state = load_file(file)
    answers = {"classifier.3.weight": torch.randn(5, 32), "classifier.3.bias": torch.zeros(5)}
    save_file({**state, **answers}, file, metadata={"format": "pt"})
    spec = ViltEntailment(str(tmp_path / "vqa"))
    with pytest.raises(UserError, match="a head of 5 logits"):
        spec.load()
    assert len(spec.load_to_train(0).model.classifier[3].bias) == 3
    flat = {"classifier.3.weight": torch.zeros(3)}
    save_file({**state, **flat}, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match="three logits are needed"):
        spec.load()
    save_file({**state, "classifier.1.bias": torch.zeros(7)}, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match="does not fit the encoder"):
        spec.load()
    state["classifier.1.bias"][0] = torch.nan
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match="damaged"):
        spec.load()


def test_what_is_no_question_about_an_image_is_refused(trained, folders):
    entailer = ViltEntailment(str(trained / "vilt")).load()
    with pytest.raises(UserError, match="reads images"):
        entailer.entail([""], TEXTS[:1])
    with pytest.raises(UserError, match="premise is the image"):
        entailer.entail(["a dog"], TEXTS[:1], tiny.pixels(1))
    with pytest.raises(UserError, match="of the type 'flava', and this entailer is a 'vilt'"):
        ViltEntailment(str(trained / "flava")).load()
    assert not isinstance(TextEntailment(str(folders["entailer"])), EntailmentLearner)


def test_the_asked_answers_are_ranked_as_one_at_a_time(folders, tmp_path):
    prompt = tmp_path / "asked.yaml"
    prompt.write_text(
        "question: 'the {hypothesis} on the beach'\n"
        "options: {entailment: a ball, neutral: the, contradiction: red sand}\n"
    )
    pixels = tiny.pixels(3)
    spec = PromptedEntailment(str(folders["llava"]), prompt=PLAIN, wording=str(prompt))
    entailer = spec.load(protocols.Entailer)
    probabilities = entailer.entail([""] * 3, TEXTS[:3], pixels)
    answerer = VisionLanguage(str(folders["llava"]), prompt=PLAIN, sharing="none").load()
    for row, text in enumerate(TEXTS[:3]):
        picture = Image.fromarray(pixels[row].permute(1, 2, 0).numpy())
        asked = Question(f"the {text} on the beach", ("a ball", "the", "red sand"))
        [[answered]] = answerer.answer([picture], [[asked]])
        likelihoods = torch.tensor([-score.nll for score in answered.scores]).exp()
        torch.testing.assert_close(probabilities[row], (likelihoods / likelihoods.sum()).float())
    mean = PromptedEntailment(
        str(folders["llava"]), prompt=PLAIN, wording=str(prompt), reduction="token_mean"
    )
    assert not torch.allclose(mean.load().entail([""] * 3, TEXTS[:3], pixels), probabilities)
    assert len({spec.identity(), mean.identity()}) == 2
    copied = tmp_path / "copied.yaml"
    copied.write_text(prompt.read_text())
    assert PromptedEntailment(
        str(folders["llava"]), prompt=PLAIN, wording=str(copied)
    ).identity() == (spec.identity())
    with pytest.raises(UserError, match="reads images"):
        entailer.entail([""], TEXTS[:1])


@pytest.mark.parametrize("name", ["yes_maybe_no", "labels"])
def test_shipped_prompts_ask_for_three_answers(name):
    prompt = read_prompt(name)
    assert list(prompt.options) == list(ENTAILMENT)
    assert "\n" not in prompt.question.strip()
    assert all(answer in prompt.question for answer in prompt.options.values())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("question: [", "not valid YAML"),
        ("question: '{hypothesis}'", "keys question, options"),
        ("question: is it\noptions: {}", "exactly once"),
        ("question: '{hypothesis}'\noptions: {entailment: a}", "an answer for each"),
        (
            "question: '{hypothesis}'\noptions: {entailment: yes, neutral: b, contradiction: c}",
            "quotation marks",
        ),
        (
            "question: '{hypothesis}'\noptions: {entailment: a, neutral: a, contradiction: c}",
            "same answer",
        ),
    ],
)
def test_a_prompt_that_cannot_be_asked_is_refused(tmp_path, content, reason):
    file = tmp_path / "asked.yaml"
    file.write_text(content)
    with pytest.raises(UserError, match=reason):
        read_prompt(str(file))


def test_settings_of_asked_models_are_checked(folders):
    with pytest.raises(UserError, match="reduction=mean: choose from sum, token_mean"):
        PromptedEntailment(str(folders["llava"]), reduction="mean")
    with pytest.raises(UserError, match="choose yes_maybe_no, labels, or a YAML"):
        PromptedEntailment(str(folders["llava"]), wording="nowhere.yaml").load()
