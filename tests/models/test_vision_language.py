"""Options ranked by vision-language models: shared readings are exact, whatever the family."""

from __future__ import annotations

import json
from functools import partial

import pytest
import torch

from cfaug.core.answers import Answered, Demonstration, Question
from cfaug.core.errors import UserError
from cfaug.core.protocols import Answerer
from cfaug.models import prompts
from cfaug.models.task_specs import VisionLanguage
from cfaug.models.vision_language import VisionLanguageModel
from tests.models import tiny, tiny_vlm

PROMPTED = {"blip_2", "blip_2_t5", "instructblip", "instructblip_t5", "paligemma"}
TRANSLATES = {"blip_2_t5", "instructblip_t5"}
"""Those of an encoder and a decoder."""
PROMPT = "Question: {question} Answer:"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    shelf = tmp_path_factory.mktemp("vlm")
    return {name: save(shelf / name) for name, save in tiny_vlm.SAVERS.items()}


def load(folders, name, **settings):
    if name in PROMPTED:
        settings.setdefault("prompt", PROMPT)
    return VisionLanguageModel.load(folders[name], **settings)


def nlls(answers):
    """The costs of all options, of every image and question in turn."""
    return [score.nll for of_image in answers for answer in of_image for score in answer.scores]


def close(answers):
    return pytest.approx(nlls(answers), abs=1e-4, rel=1e-5)


QUESTIONS = [
    [Question("is it red?", ("yes", "no", "red or green")),
     Question("if the thing were removed, what would be left?", ("nothing", "red")),
     Question("which?", ("it",))],
    [Question("how many red things are there?", ("1", "2", "10"))],
    [Question("what is on the left?", ("a red thing", "the"))],
]  # fmt: skip
IMAGES = [tiny.image(48, 32), tiny.image(32, 48, 1), tiny.image(48, 32, 2)]


def at_home(folder):
    """The model and its processor as plain transformers loads them."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    return model, AutoProcessor.from_pretrained(folder)


def naive(model, processor, name, picture, question):
    """Each option by plain transformers: processor and model asked about the whole text."""
    if name in PROMPTED:
        prompt = PROMPT.replace("{question}", question.text)
    else:
        content = [{"type": "image"}, {"type": "text", "text": question.text}]
        prompt = processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True
        )
    space = "" if prompt.endswith("\n") else " "
    plain = {"add_special_tokens": not prompt.startswith("<s>"), "return_tensors": "pt"}
    scores = []
    for option in question.options:
        if name in TRANSLATES:
            given = processor(images=[picture], text=[prompt], **plain)
            ids = processor.tokenizer(option)["input_ids"]
            said = torch.tensor([[0, *ids[:-1]]])
            with torch.no_grad():
                log_p = model(**given, decoder_input_ids=said).logits[0].log_softmax(-1)
            nll = -sum(float(log_p[i, token]) for i, token in enumerate(ids))
            scores.append((nll, len(ids)))
            continue
        before = processor(images=[picture], text=[prompt], **plain)
        whole = processor(images=[picture], text=[prompt + space + option], **plain)
        if name == "instructblip":  # its queries read the prompt, never the answer
            whole |= {key: before[key] for key in before if key.startswith("qformer")}
        ids, asked = whole["input_ids"][0].tolist(), before["input_ids"][0].tolist()
        pairs = zip(asked, ids, strict=False)
        start = next((i for i, (a, b) in enumerate(pairs) if a != b), len(asked))
        with torch.no_grad():
            log_p = model(**whole).logits[0].log_softmax(-1)
        nll = -sum(float(log_p[i - 1, ids[i]]) for i in range(start, len(ids)))
        scores.append((nll, len(ids) - start))
    return scores


FAMILIES = [name for name in tiny_vlm.SAVERS if name != "paligemma"]


@pytest.mark.parametrize("name", FAMILIES)
def test_shared_scores_are_those_of_plain_transformers_one_option_at_a_time(folders, name, capsys):
    model = load(folders, name)
    shared = model.answer(IMAGES, QUESTIONS)
    assert capsys.readouterr().err == ""  # everything was shared
    home = at_home(folders[name])
    for picture, questions, answers in zip(IMAGES, QUESTIONS, shared, strict=True):
        for question, answer in zip(questions, answers, strict=True):
            expected = naive(*home, name, picture, question)
            assert [s.tokens for s in answer.scores] == [tokens for _, tokens in expected]
            assert [s.nll for s in answer.scores] == pytest.approx(
                [nll for nll, _ in expected], abs=1e-4, rel=1e-5
            )


def test_a_model_that_looks_ahead_is_refused(folders, monkeypatch):
    with pytest.raises(UserError, match="changes the text after an image"):
        load(folders, "paligemma", prompt="{image}{question}").answer(IMAGES, QUESTIONS)
    model = load(folders, "llava")
    tell = model.scoring.decoder.tell
    monkeypatch.setattr(
        model.scoring.decoder, "tell",
        lambda inputs: tell(inputs) + 0.1 * inputs["input_ids"].shape[1],
    )  # fmt: skip
    with pytest.raises(UserError, match="outputs for a prompt depend on the option after it"):
        model.answer(IMAGES, QUESTIONS)


@pytest.mark.parametrize(
    ("name", "tokens_at_once"),
    [("llava", 1), ("llava", 100), ("qwen2_vl", 100), ("instructblip", 100), ("blip_2_t5", 1)],
)
def test_neither_batches_nor_sharing_change_a_score(folders, name, tokens_at_once, capsys):
    expected = load(folders, name, sharing="none").answer(IMAGES, QUESTIONS)
    answers = load(folders, name, tokens_at_once=tokens_at_once).answer(IMAGES, QUESTIONS)
    assert capsys.readouterr().err == ""
    assert nlls(answers) == close(expected)


@pytest.mark.parametrize("name", sorted(TRANSLATES))
def test_questions_of_any_length_are_encoded_together_and_an_image_is_seen_once(
    folders, name, monkeypatch
):
    model = load(folders, name)
    expected = load(folders, name, sharing="none").answer(IMAGES, QUESTIONS)
    model.answer(IMAGES[:1], QUESTIONS[:1])  # what can be shared is checked
    seen, encoded, prepared = [], [], []
    towers = (model.model.vision_model, seen), (model.model.language_model.encoder, encoded)
    for part, rows in towers:
        part.register_forward_hook(
            lambda _, given, named, made, rows=rows: rows.append(len(made[0])), with_kwargs=True
        )
    image_processor = model.processor.image_processor
    monkeypatch.setattr(
        model.reader.processor.image_processor, "_processor",
        lambda images, **kw: prepared.append(1) or image_processor(images, **kw),
    )  # fmt: skip
    answers = model.answer(IMAGES, QUESTIONS)
    assert encoded == [5]
    assert seen == ([3] if name == "blip_2_t5" else [5])  # InstructBLIP's queries read the question
    assert len(prepared) == 2  # what was made of the first image is remembered
    assert not isinstance(
        model.processor.image_processor, type(model.reader.processor.image_processor)
    )
    assert nlls(answers) == close(expected)


@pytest.mark.parametrize(
    ("name", "tokens_at_once"),
    [("blip_2_t5", 40), ("blip_2_t5", 300), ("instructblip_t5", 40), ("instructblip_t5", 300)],
)
def test_no_more_places_are_read_together_than_the_setting_says(folders, name, tokens_at_once):
    model = load(folders, name, tokens_at_once=tokens_at_once)
    model.answer(IMAGES[:1], QUESTIONS[:1])
    places = []

    def count(part, given, named):
        memory, embedded = named.get("encoder_hidden_states"), named.get("inputs_embeds")
        rows, width = (named["input_ids"] if embedded is None else embedded).shape[:2]
        places.append((rows, width + (0 if memory is None else memory.shape[1])))

    language = model.model.language_model
    for part in (language.encoder, language.decoder):
        part.register_forward_pre_hook(count, with_kwargs=True)
    model.answer(IMAGES, QUESTIONS)
    assert max(rows for rows, _ in places) > (1 if tokens_at_once > 90 else 0)
    for rows, width in places:
        assert rows == 1 or rows * width <= tokens_at_once + rows  # and the token of the start


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "blip_2", "instructblip_t5"])
def test_a_blind_model_does_not_see_the_image(folders, name, capsys):
    model = load(folders, name)
    seen = model.answer(IMAGES[:1], QUESTIONS[:1])
    blind = model.answer([None, None], [QUESTIONS[0], QUESTIONS[0]])
    other = model.answer([None], [QUESTIONS[0][:1]])
    assert blind[0][0].scores[0].nll == pytest.approx(blind[1][0].scores[0].nll, rel=1e-5)
    assert blind[0][0].scores[0].nll == pytest.approx(other[0][0].scores[0].nll, rel=1e-5)
    assert blind[0][0].scores[0].nll != pytest.approx(seen[0][0].scores[0].nll, rel=1e-3)
    assert model.answer(IMAGES[:1], QUESTIONS[:1]) == seen  # nothing is left of the text alone
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["qwen2_vl", "idefics3"])
def test_demonstrations_stand_before_the_question(folders, name, capsys):
    shown = Demonstration("is it blue?", "It is blue. Answer: yes", tiny.image(48, 32, 9))
    said = Demonstration("is it blue?", "It is blue. Answer: yes")
    model = load(folders, name)
    for demonstration in (shown, said):
        asked = [
            Question("is it red?", ("yes", "no"), (demonstration,)),
            Question("and green?", ("yes", "no"), (demonstration,), opening="It is. Answer:"),
        ]
        answers = model.answer([IMAGES[0]], [asked])
        assert nlls(answers) == close(
            load(folders, name, sharing="none").answer(IMAGES[:1], [asked])
        )
        plain = model.answer([IMAGES[0]], [[Question("is it red?", ("yes", "no"))]])
        assert nlls(plain)[0] != pytest.approx(nlls(answers)[0], rel=1e-3)
    assert capsys.readouterr().err == ""


def test_what_cannot_be_asked_is_said(tmp_path):
    with pytest.raises(UserError, match="option 1 is empty"):
        Question("what?", ("a", " "))
    plain = tiny_vlm.save_llava(tmp_path / "plain", template=None)
    with pytest.raises(UserError, match=r"no chat template: give a template.*model\.prompt="):
        VisionLanguageModel.load(plain)
    prompted = VisionLanguageModel.load(plain, prompt="USER: {image}\n{question} ASSISTANT:")
    assert len(prompted.answer(IMAGES, QUESTIONS)) == 3
    with pytest.raises(UserError, match=r"no place for an image.*put \{image\}"):
        VisionLanguageModel.load(plain, prompt="{question}").answer(IMAGES, QUESTIONS)


def test_a_model_that_cannot_share_is_read_whole_and_says_so(folders, capsys, monkeypatch):
    from cfaug.models.option_scores import PrefixState

    expected = load(folders, "llava", sharing="none").answer(IMAGES, QUESTIONS)
    model = load(folders, "llava")

    def refuse(self, rows):
        raise TypeError("a cache of RecurrentLayer cannot be shared")

    monkeypatch.setattr(PrefixState, "take", refuse)
    assert model.answer(IMAGES, QUESTIONS) == expected
    said = capsys.readouterr().err
    assert "several times as slow" in said
    assert "RecurrentLayer" in said
    assert model.answer(IMAGES, QUESTIONS) == expected
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", FAMILIES)
def test_written_answers_are_those_of_plain_transformers(folders, name):
    model = load(folders, name)
    questions = [QUESTIONS[0][0], QUESTIONS[1][0], QUESTIONS[0][0], Question("why " * 300)]
    written = model.write([*IMAGES, IMAGES[0]], questions, max_new_tokens=6)
    assert written[3] == Answered(left_out="context")
    written = [answered.text for answered in written]
    plain, processor = at_home(folders[name])
    for picture, question, answer in zip(IMAGES, questions, written, strict=False):
        prompt = model.prompts.text(question, True)
        given = processor(
            images=[picture], text=[prompt], return_tensors="pt",
            add_special_tokens=not prompt.startswith("<s>"),
        )  # fmt: skip
        ids = plain.generate(**given, max_new_tokens=6, do_sample=False)
        cut = given["input_ids"].shape[1] if ids.shape[1] > 7 else 0
        expected = processor.tokenizer.decode(ids[0, cut:], skip_special_tokens=True)
        assert answer == " ".join(expected.split())
    assert len(set(written)) > 1


def test_the_specification_loads_an_answerer(folders):
    spec = VisionLanguage(str(folders["llava"]))
    model = spec.load(Answerer)
    assert isinstance(model, Answerer)
    slow = VisionLanguage(str(folders["llava"]), sharing="none", tokens_at_once=99)
    assert spec.identity() == slow.identity()
    assert not any(slow.load().shares.values())
    half = VisionLanguage(str(folders["llava"]), dtype="bfloat16")
    assert half.identity() != spec.identity()
    nll = half.load().answer(IMAGES, QUESTIONS)[0][0].scores[0].nll
    assert nll == pytest.approx(model.answer(IMAGES, QUESTIONS)[0][0].scores[0].nll, rel=0.1)
    for wrong, said in (
        ({"dtype": "int8"}, "float16"), ({"sharing": "all"}, "sharing=all: choose from auto, none"),
        ({"prompt": "{image}"}, "question"), ({"tokens_at_once": 0}, "tokens_at_once"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=said):
            VisionLanguage("folder", **wrong)


# Questions, images and checkpoints that cannot be asked: left out by reason, or a clear error.

PLAIN = Question("is it red?", ("yes", "no"))
picture = partial(tiny.image, 48, 32)


@pytest.mark.parametrize("name", ["llava", "instructblip_t5", "internvl"])
def test_texts_with_a_special_token_are_left_out_and_the_others_are_not(folders, name):
    model = load(folders, name)
    token = model.prompts.image_token
    shown = (Demonstration(f"what is {token}?", "it", picture(seed=2)),)
    odd = [
        Question(f"what is {token}?", ("a", "b")), Question("what? </s>", ("a", "b")),
        Question("what?", ("a", "<pad>")), Question("what?", ("a", "b"), opening="<s>"),
        Question("what?", ("a", "b"), shown),
    ]  # fmt: skip
    [answers] = model.answer([picture()], [[odd[0], PLAIN, *odd[1:]]])
    assert [answer.left_out for answer in answers] == ["special_token", "", *["special_token"] * 4]
    [alone] = model.answer([picture()], [[PLAIN]])
    assert [s.nll for s in answers[1].scores] == pytest.approx([s.nll for s in alone[0].scores])
    [blind] = model.answer([None], [[odd[0]]])
    assert blind == [Answered(left_out="special_token")]
    written = model.write([picture()] * 2, [odd[0], PLAIN], 4)
    assert written[0] == Answered(left_out="special_token")
    assert written[1].text is not None


@pytest.mark.parametrize("name", ["llava", "instructblip", "blip_2_t5"])
def test_what_is_longer_than_any_part_of_the_model_reads_is_left_out(folders, name):
    model = load(folders, name)
    long = [Question("why " * n, ("a", "b")) for n in (40, 95, 200)]  # Q-Formers read 256 tokens
    [answers] = model.answer([picture()], [[*long, PLAIN]])
    too_long = 1 if name.startswith("instruct") else 2
    reasons = ["context" if n >= too_long else "" for n in range(3)]
    assert [answer.left_out for answer in answers] == [*reasons, ""]
    written = model.write([picture()] * 3, long, 4)
    assert [answer.left_out for answer in written] == [answer.left_out for answer in answers[:3]]
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
    [answers] = model.answer([picture()], [questions])
    assert [answer.left_out for answer in answers] == ["no_token", ""]


def test_an_option_that_joins_the_prompt_is_scored_from_the_joint_token(folders):
    model = load(folders, "llava", prompt="USER: {image}\n{question} It is r")
    text = model.prompts.text(Question("what is it?"), True)
    asked = model.prompts.tokens(text)
    joint = model.prompts.option(text[:-1] + "\n", asked, "red")
    whole = model.prompts.tokens(text[:-1] + "\nred")
    assert joint.ids == whole
    joined = Question("what is it?", ("ed", "th"), opening="")
    # " ed" and " th" stand behind a space, "\u0120t" + "h" and "\u0120" + "ed" join differently
    [[answer]] = model.answer([picture()], [[joined]])
    for option, score in zip(joined.options, answer.scores, strict=True):
        ids = model.prompts.tokens(f"{text} {option}")
        start = next(n for n, (a, b) in enumerate(zip([*asked, None], ids)) if a != b)  # noqa: B905
        assert score.tokens == len(ids) - start


@pytest.mark.slow
def test_more_options_than_are_read_together_have_the_scores_of_each_alone(folders):
    options = tuple(f"{n} red things" for n in range(24))
    for name in ("llava", "blip_2_t5"):
        question = Question("how many?", options)
        together = load(folders, name, tokens_at_once=200).answer([picture()], [[question]])
        some = Question("how many?", options[::8])
        alone = load(folders, name, sharing="none").answer([picture()], [[some]])
        assert nlls(together)[::8] == close(alone)


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
    shared = model.answer(images, asked)
    assert capsys.readouterr().err == ""
    whole = VisionLanguageModel.load(folder, sharing="none").answer(images, asked)
    assert nlls(shared) == close(whole)
    shapes = {
        tuple(model.reader.read(image, [PLAIN])[0].inputs["pixel_values"].shape) for image in images
    }
    assert len(shapes) > 1 or name == "llava_next"  # which pads its tiles
    assert shared[0] != shared[1]


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
        ("{{ ''.__class__.__mro__ }}", "cannot write a question.*(Security|unsafe)"),
        ("no place", "its chat template leaves it out"),
        (LOOPS, "cannot write a question.*TimeoutError: it takes more than 0.5 s"),
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
