"""Questions, images and checkpoints that cannot be asked: left out by reason, or a clear error."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.questions import Answered, Demonstration, Question
from cfaug.models import prompts
from cfaug.models.vision_language import VisionLanguageModel
from tests.models import tiny, tiny_vlm
from tests.models.test_vision_language import close, load, nlls

PLAIN = Question("is it red?", ("yes", "no"))
NAMES = ("llava", "instructblip", "instructblip_t5", "blip_2_t5", "internvl")


picture = partial(tiny.image, 48, 32)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("vlm")
    return {name: tiny_vlm.SAVERS[name](shelf / name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_texts_with_a_special_token_are_left_out_and_the_others_are_not(folders, name):
    model = load(folders, name)
    token = model.prompts.image_token
    shown = (Demonstration(f"what is {token}?", "it", picture(seed=2)),)
    odd = [
        Question(f"what is {token}?", ("a", "b")), Question("what? </s>", ("a", "b")),
        Question("what?", ("a", "<pad>")), Question("what?", ("a", "b"), opening="<s>"),
        Question("what?", ("a", "b"), shown),
    ]  # fmt: skip
    [found] = model.answer([picture()], [[odd[0], PLAIN, *odd[1:]]])
    assert [one.left_out for one in found] == ["special_token", "", *["special_token"] * 4]
    [alone] = model.answer([picture()], [[PLAIN]])
    assert [s.nll for s in found[1].scores] == pytest.approx([s.nll for s in alone[0].scores])
    [blind] = model.answer([None], [[odd[0]]])
    assert blind == [Answered(left_out="special_token")]
    written = model.write([picture()] * 2, [odd[0], PLAIN], 4)
    assert written[0] == Answered(left_out="special_token")
    assert written[1].text is not None


@pytest.mark.parametrize("name", ["llava", "instructblip", "instructblip_t5", "blip_2_t5"])
def test_what_is_longer_than_any_part_of_the_model_reads_is_left_out(folders, name):
    model = load(folders, name)
    long = [Question("why " * n, ("a", "b")) for n in (40, 95, 200)]  # Q-Formers read 256 tokens
    [found] = model.answer([picture()], [[*long, PLAIN]])
    too_long = 1 if name.startswith("instruct") else 2
    reasons = ["context" if n >= too_long else "" for n in range(3)]
    assert [one.left_out for one in found] == [*reasons, ""]
    written = model.write([picture()] * 3, long, 4)
    assert [one.left_out for one in written] == [one.left_out for one in found[:3]]
    huge = Question("why " * prompts.LONG, ("a", "b"))
    assert model.answer([picture()], [[huge]]) == [[Answered(left_out="context")]]
    wordy = Question("why?", ("a", "b " * 400))
    [[answered]] = model.answer([picture()], [[wordy]])
    assert answered.left_out == "context"


@pytest.mark.parametrize("name", ["llava", "blip_2_t5"])
def test_an_option_without_a_token_is_left_out(folders, name, monkeypatch):
    model = load(folders, name)
    tokens = model.prompts.tokens
    monkeypatch.setattr(
        model.prompts, "tokens", lambda text: tokens(text.removesuffix("~").rstrip(" "))
        if text.endswith("~") else tokens(text),
    )  # fmt: skip
    questions = [Question("what?", ("a", "~")), PLAIN]
    [found] = model.answer([picture()], [questions])
    assert [one.left_out for one in found] == ["no_token", ""]


def test_an_option_that_joins_the_prompt_is_scored_from_the_joint_token(folders):
    model = load(folders, "llava", prompt="USER: {image}\n{question} It is r")
    text = model.prompts.text(Question("what is it?"), True)
    asked = model.prompts.tokens(text)
    joint = model.prompts.option(text[:-1] + "\n", asked, "red")
    whole = model.prompts.tokens(text[:-1] + "\nred")
    assert joint.ids == whole
    joined = Question("what is it?", ("ed", "th"), opening="")
    # " ed" and " th" stand behind a space, "\u0120t" + "h" and "\u0120" + "ed" join differently
    [[found]] = model.answer([picture()], [[joined]])
    for option, score in zip(joined.options, found.scores, strict=True):
        ids = model.prompts.tokens(f"{text} {option}")
        start = next(n for n, (a, b) in enumerate(zip([*asked, None], ids)) if a != b)  # noqa: B905
        assert score.tokens == len(ids) - start


@pytest.mark.slow
def test_more_options_than_are_read_together_have_the_scores_of_each_alone(folders):
    options = tuple(f"{n} red things" for n in range(24))
    for name in ("llava", "blip_2_t5"):
        question = Question("how many?", options)
        found = load(folders, name, tokens_at_once=200).answer([picture()], [[question]])
        some = Question("how many?", options[::8])
        alone = load(folders, name, sharing="none").answer([picture()], [[some]])
        assert nlls(found)[::8] == close(alone)


TILES = {
    "llava_next": tiny_vlm.save_llava_next,
    "internvl": lambda folder: tiny_vlm.save_internvl(folder, tiles=4),
    "idefics3": lambda folder: tiny_vlm.save_idefics3(folder, tiles=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TILES))
def test_images_in_any_number_of_tiles_are_shared_exactly(name, tmp_path, capsys):
    folder = TILES[name](tmp_path / name)
    capsys.readouterr()
    sizes = [(48, 48), (96, 32), (32, 96), (97, 31)]
    images = [tiny.image(*size, seed) for seed, size in enumerate(sizes)]
    asked = [[PLAIN, Question("if it were gone, what?", ("red", "nothing at all"))]] * 4
    model = VisionLanguageModel.load(folder)
    found = model.answer(images, asked)
    assert capsys.readouterr().err == ""
    whole = VisionLanguageModel.load(folder, sharing="none").answer(images, asked)
    assert nlls(found) == close(whole)
    shapes = {
        tuple(model.reader.read(one, [PLAIN])[0].inputs["pixel_values"].shape) for one in images
    }
    assert len(shapes) > 1 or name == "llava_next"  # which pads its tiles
    assert found[0] != found[1]


def test_scores_that_are_no_numbers_are_an_error_that_says_what_to_try(folders):
    for sharing in ("auto", "none"):
        model = load(folders, "blip_2_t5", sharing=sharing)
        with torch.no_grad():
            model.model.language_model.lm_head.weight.fill_(torch.nan)
        with pytest.raises(
            UserError, match=r"'yes' of 'is it red\?' has a likelihood of nan.*float"
        ):
            model.answer([picture()], [[PLAIN]])


def test_a_lack_of_memory_is_no_reason_to_read_everything_anew(folders, monkeypatch, capsys):
    for error in (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"), MemoryError("no"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
    ):  # fmt: skip
        model = load(folders, "llava", tokens_at_once=77)

        def fail(*given, error=error):
            raise error

        monkeypatch.setattr(model.scoring, "shared", fail)
        with pytest.raises(UserError, match=r"not enough memory.*lower model.tokens_at_once=77"):
            model.answer([picture()], [[PLAIN]])
        assert model.shares[True]
    assert capsys.readouterr().err == ""


def with_template(folder, template):
    """Save a model again with another chat template."""
    saved = tiny_vlm.save_llava(folder)
    for file in (saved / "chat_template.jinja", saved / "chat_template.json"):
        if file.exists():
            is_json = file.suffix == ".json"
            file.write_text(json.dumps({"chat_template": template}) if is_json else template)
    return saved


LOOPS = "{% for i in range(99999) %}" * 4 + "{% endfor %}" * 4


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{# " + "x" * prompts.MOST_TEMPLATE + " #}", "chat template of 1,048,582 characters"),
        ("<image>{% for i in range(99999) %}twenty-one characters{% endfor %}",
         "chat template writes 2,"),
        ("{% for i in range(10000000) %}x{% endfor %}", "cannot write a question.*Overflow"),
        ("{{ messages[0]['content'] + 1 }}", "cannot write a question with image and text"),
        ("{{ ''.__class__.__mro__ }}", "cannot write a question.*(Security|unsafe)"),
        ("no place", "its chat template leaves it out"),
        (LOOPS, "cannot write a question.*TimeoutError: it takes more than 0.5 s"),
        ("{% set ns = namespace(x=range(9999)) %}" + LOOPS.replace("range(99999)", "ns.x"),
         "TimeoutError: it takes more than 0.5 s"),
    ],
)  # fmt: skip
@pytest.mark.timeout(120)  # some of them would write for days
def test_a_chat_template_that_does_more_than_write_is_refused(
    template, said, tmp_path, monkeypatch
):
    if "TimeoutError" in said:
        monkeypatch.setattr("cfaug.core.safety.safe_loading.RENDER_S", 0.5)
    folder = with_template(tmp_path / "vlm", template)
    with pytest.raises(UserError, match=said):
        VisionLanguageModel.load(folder).answer([picture()], [[PLAIN]])
