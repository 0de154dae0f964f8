"""Models of one task: each gives what plain transformers gives, alone as in a batch."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from cfaug.core import protocols
from cfaug.core.errors import UserError
from cfaug.models.task_specs import (
    ImageCaptioning,
    ImageClassification,
    ObjectDetection,
    PromptedEntailment,
    TextEntailment,
    VisionLanguage,
)
from tests.models import tiny, tiny_vlm

PROMPT = "the {image} on {question} a"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("weights")
    saved = tiny.save_all(shelf, "classifier", "entailer", "detector", "llava", "blip")
    return {name: str(folder) for name, folder in saved.items()}


@pytest.fixture(scope="module")
def specs(folders):
    return {
        "classifier": ImageClassification(folders["classifier"]),
        "entailer": TextEntailment(folders["entailer"]),
        "detector": ObjectDetection(folders["detector"], threshold=0.0),
        "answerer": VisionLanguage(folders["llava"], prompt=PROMPT),
        "captioner": ImageCaptioning(folders["blip"], max_new_tokens=5),
        "llava_captioner": ImageCaptioning(folders["llava"], max_new_tokens=5, prompt="a red"),
    }


def test_logits_are_those_of_plain_transformers(folders, specs):
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    model = specs["classifier"].load()
    assert isinstance(model, protocols.Classifier)
    assert not model.training
    images = [tiny.image(seed=seed) for seed in range(5)]
    pixels = torch.from_numpy(np.stack([model.transform(image) for image in images]))
    plain = AutoModelForImageClassification.from_pretrained(folders["classifier"])
    processor = AutoImageProcessor.from_pretrained(folders["classifier"])
    with torch.no_grad():
        expected = plain(**processor(images=images, return_tensors="pt")).logits
        logits = model.classify(pixels)
        alone = torch.cat([model.classify(image[None]) for image in pixels])
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(logits, alone)
    assert logits.std() > 0.1
    assert model.classes == ("ball", "cube", "star", "beach", "sand")


PREMISES = ["a red ball on the beach", "a cube", "the sand"]
HYPOTHESES = ["a ball", "a blue star on the grass", "a red cube on the sand"]


def test_probabilities_are_those_of_plain_transformers_in_our_order(folders, specs):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = specs["entailer"].load()
    assert isinstance(model, protocols.Entailer)
    assert not model.training
    plain = AutoModelForSequenceClassification.from_pretrained(folders["entailer"])
    tokenizer = AutoTokenizer.from_pretrained(folders["entailer"])
    with torch.no_grad():
        probabilities = model.entail(PREMISES, HYPOTHESES)
        for row, (premise, hypothesis) in enumerate(zip(PREMISES, HYPOTHESES, strict=True)):
            logits = plain(**tokenizer(premise, hypothesis, return_tensors="pt")).logits[0]
            contradiction, neutral, entailment = logits.softmax(-1)
            expected = torch.stack([entailment, neutral, contradiction])
            torch.testing.assert_close(probabilities[row], expected)
    assert probabilities.std() > 0.05
    with pytest.raises(UserError, match="texts only"):
        model.entail(PREMISES, HYPOTHESES, tiny.pixels(3))


def test_the_order_of_labels_is_read_or_told_and_never_guessed(folders, tmp_path):
    folder = tiny.save_entailer(tmp_path / "unnamed", labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    with pytest.raises(UserError, match=r"model\.labels=\[") as caught:
        TextEntailment(str(folder)).load()
    assert "LABEL_0" in str(caught.value)
    labelled = TextEntailment(str(folder), labels=("neutral", "entailment", "contradiction")).load()
    named = TextEntailment(folders["entailer"]).load()
    with torch.no_grad():
        ours, theirs = labelled.entail(PREMISES, HYPOTHESES), named.entail(PREMISES, HYPOTHESES)
    torch.testing.assert_close(ours[:, [1, 0, 2]], theirs[:, [2, 1, 0]])
    with pytest.raises(UserError, match="2 logits"):
        TextEntailment(str(tiny.save_entailer(tmp_path / "two", labels=("a", "b")))).load()


def test_objects_are_those_of_plain_transformers_whatever_else_is_in_the_batch(folders, specs):
    from transformers import AutoImageProcessor, AutoModelForObjectDetection

    sizes = [(64, 64), (60, 40), (64, 64), (40, 60)]
    images = [tiny.image(*size, seed) for seed, size in enumerate(sizes)]
    model = specs["detector"].load()
    assert isinstance(model, protocols.Detector)
    assert not model.training
    detected = model.detect(images)
    plain = AutoModelForObjectDetection.from_pretrained(folders["detector"])
    processor = AutoImageProcessor.from_pretrained(folders["detector"])
    for image, objects in zip(images, detected, strict=True):
        assert model.detect([image]) == [objects]
        with torch.no_grad():
            output = plain(**processor(images=image, return_tensors="pt"))
        [expected] = processor.post_process_object_detection(
            output, threshold=0.0, target_sizes=[image.size[::-1]]
        )
        order = expected["scores"].argsort(descending=True)
        assert [o["score"] for o in objects] == pytest.approx(
            expected["scores"][order].tolist(), abs=1e-4
        )
        boxes = np.array([o["box"] for o in objects])
        assert np.allclose(boxes, expected["boxes"][order].numpy(), atol=1e-2)
        assert {o["label"] for o in objects} <= {"ball", "cube", "star"}
    assert json.loads(json.dumps(detected)) == detected
    few = ObjectDetection(folders["detector"], threshold=0.5).load().detect(images)
    assert [[o for o in objects if o["score"] > 0.5] for objects in detected] == few
    assert model.detect([]) == []


def test_captions_are_those_of_plain_blip(folders, specs):
    from transformers import BlipForConditionalGeneration, BlipProcessor

    plain = BlipForConditionalGeneration.from_pretrained(folders["blip"])
    processor = BlipProcessor.from_pretrained(folders["blip"])
    pixels = tiny.pixels(4)
    images = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in pixels]
    for prompt, prefix in (("", ""), ("a red", "a photo of")):
        asked = ImageCaptioning(
            folders["blip"], prompt=prompt, prefix=prefix, max_new_tokens=6, num_beams=2
        )
        captions = asked.load().caption(pixels)
        assert len(set(captions)) > 1
        for image, caption in zip(images, captions, strict=True):
            text = {"text": prompt} if prompt else {}
            inputs = processor(images=image, return_tensors="pt", **text)
            with torch.no_grad():
                ids = plain.generate(**inputs, max_new_tokens=6, num_beams=2)
            whole = processor.decode(ids[0], skip_special_tokens=True)
            assert whole.startswith(prompt)
            assert caption == f"{prefix} {whole.removeprefix(prompt).strip()}".strip()


def test_captions_are_those_of_plain_llava(folders, specs):
    from transformers import AutoModelForImageTextToText, AutoProcessor

    plain = AutoModelForImageTextToText.from_pretrained(folders["llava"])
    processor = AutoProcessor.from_pretrained(folders["llava"])
    pixels = tiny.pixels(4)
    captions = specs["llava_captioner"].load().caption(pixels)
    assert len(set(captions)) > 1
    for image, caption in zip(pixels, captions, strict=True):
        inputs = processor(images=Image.fromarray(image.permute(1, 2, 0).numpy()),
                           text="<image>a red", return_tensors="pt")  # fmt: skip
        inputs = {k: v[:, :-1] if v.ndim == 2 else v for k, v in inputs.items()}  # without [SEP]
        with torch.no_grad():
            ids = plain.generate(**inputs, max_new_tokens=5, do_sample=False)
        new = ids[0, inputs["input_ids"].shape[1] :]
        assert caption == " ".join(processor.decode(new, skip_special_tokens=True).split())


@pytest.mark.slow
def test_captions_are_those_of_plain_blip_2(tmp_path):
    """The captioner of LANCE and its settings (section 4.1)."""
    from transformers import Blip2ForConditionalGeneration, Blip2Processor

    folder = tiny.save_blip_2(tmp_path / "blip_2")
    spec = ImageCaptioning(
        str(folder), prefix="A photo of ", num_beams=5, min_new_tokens=20, max_new_tokens=100
    )
    captioner = spec.load()
    images = [tiny.image(seed=seed) for seed in range(3)]
    pixels = torch.from_numpy(np.stack([captioner.transform(image) for image in images]))
    captions = captioner.caption(pixels)
    plain = Blip2ForConditionalGeneration.from_pretrained(folder).eval()
    processor = Blip2Processor.from_pretrained(folder)
    for image, text in zip(images, captions, strict=True):
        inputs = processor(images=image, return_tensors="pt")
        ids = plain.generate(**inputs, num_beams=5, min_new_tokens=20, max_new_tokens=100)
        said = processor.batch_decode(ids, skip_special_tokens=True)[0]
        assert text == " ".join(f"A photo of {said}".split())
        assert ids.shape[1] >= 20
    asked = ImageCaptioning(str(folder), prompt="a red", max_new_tokens=4).load()
    assert all(not caption.startswith("a red") for caption in asked.caption(pixels))


@pytest.mark.parametrize("name", ["classifier", "entailer", "detector", "answerer", "captioner"])
@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("auto_map", {"AutoModel": "code.Model"}, "Python code of its own"),
        ("num_hidden_layers", 10**9, "absurd"),
    ],
)
def test_a_hostile_folder_is_refused(specs, tmp_path, name, key, value, words):
    spec = specs[name]
    folder = shutil.copytree(spec.weights, tmp_path / name)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    with pytest.raises(UserError, match=words):
        spec.at(str(folder)).load()


@pytest.mark.parametrize("name", ["classifier", "entailer", "detector", "captioner"])
def test_pickles_and_damaged_weights_are_refused(specs, tmp_path, name):
    from safetensors.torch import load_file, save_file

    spec = specs[name]
    folder = shutil.copytree(spec.weights, tmp_path / name)
    weights = load_file(folder / "model.safetensors")
    first = next(iter(weights))
    save_file(
        {**weights, first: torch.full_like(weights[first], torch.nan)},
        folder / "model.safetensors", {"format": "pt"},
    )  # fmt: skip
    with pytest.raises(UserError, match="not numbers"):
        spec.at(str(folder)).load()
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(UserError, match="reading a pickle"):
        spec.at(str(folder)).load()


def test_identities_tell_settings_that_change_answers_apart(folders):
    plain = ImageCaptioning(folders["blip"])
    assert plain.identity() == plain.weights_hash()
    others = [
        ImageCaptioning(folders["blip"], num_beams=5), ImageCaptioning(folders["blip"], prompt="a"),
        ImageCaptioning(folders["blip"], prefix="a"), plain,
    ]  # fmt: skip
    assert len({captioner.identity() for captioner in others}) == 4
    assert len({captioner.settings_hash() for captioner in others}) == 4


def test_models_that_cannot_describe_squares_say_so(tmp_path):
    folder = str(tiny_vlm.save_qwen2_vl(tmp_path / "qwen2_vl"))
    for spec in (ImageCaptioning(folder), PromptedEntailment(folder, prompt=None)):
        with pytest.raises(UserError, match=r"images of many shapes .*model=vlm reads any"):
            spec.load()
    captioner = ImageCaptioning(str(tiny_vlm.save_instructblip(tmp_path / "instructblip"))).load()
    with pytest.raises(UserError, match="without a text to continue"):
        captioner.caption(tiny.pixels(1))
