"""Options ranked by vision-language models: shared readings are exact, whatever the family."""

from __future__ import annotations

import pytest
import torch

from cfaug.core.errors import UserError
from cfaug.core.protocols import Answerer
from cfaug.core.questions import Answered, Demonstration, Question
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
    return [score.nll for own in answers for one in own for score in one.scores]


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


def naive(folder, name, picture, question):
    """Each option by plain transformers: processor and model asked about the whole text."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
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
    found = model.answer(IMAGES, QUESTIONS)
    assert capsys.readouterr().err == ""  # everything was shared
    for picture, questions, answers in zip(IMAGES, QUESTIONS, found, strict=True):
        for question, answer in zip(questions, answers, strict=True):
            expected = naive(folders[name], name, picture, question)
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
    "name", ["llava", "qwen2_vl", "instructblip", "blip_2_t5", "instructblip_t5"]
)
@pytest.mark.parametrize("tokens_at_once", [1, 100, 400])
def test_neither_batches_nor_sharing_change_a_score(folders, name, tokens_at_once, capsys):
    expected = load(folders, name, sharing="none").answer(IMAGES, QUESTIONS)
    found = load(folders, name, tokens_at_once=tokens_at_once).answer(IMAGES, QUESTIONS)
    assert capsys.readouterr().err == ""
    assert nlls(found) == close(expected)


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
    own = model.processor.image_processor
    monkeypatch.setattr(
        model.reader.processor.image_processor, "_processor",
        lambda images, **kw: prepared.append(1) or own(images, **kw),
    )  # fmt: skip
    found = model.answer(IMAGES, QUESTIONS)
    assert encoded == [5]
    assert seen == ([3] if name == "blip_2_t5" else [5])  # InstructBLIP's queries read the question
    assert len(prepared) == 2  # what was made of the first image is remembered
    assert not isinstance(
        model.processor.image_processor, type(model.reader.processor.image_processor)
    )
    assert nlls(found) == close(expected)


@pytest.mark.parametrize("name", sorted(TRANSLATES))
@pytest.mark.parametrize("tokens_at_once", [40, 90, 300])
def test_no_more_places_are_read_together_than_the_setting_says(folders, name, tokens_at_once):
    model = load(folders, name, tokens_at_once=tokens_at_once)
    model.answer(IMAGES[:1], QUESTIONS[:1])
    places = []

    def count(part, given, named):
        memory = named.get("encoder_hidden_states")
        ids = (
            named["inputs_embeds"] if named.get("inputs_embeds") is not None else named["input_ids"]
        )
        rows, width = ids.shape[:2]
        places.append((rows, width + (0 if memory is None else memory.shape[1])))

    language = model.model.language_model
    for part in (language.encoder, language.decoder):
        part.register_forward_pre_hook(count, with_kwargs=True)
    model.answer(IMAGES, QUESTIONS)
    assert max(rows for rows, _ in places) > (1 if tokens_at_once > 90 else 0)
    for rows, width in places:
        assert rows == 1 or rows * width <= tokens_at_once + rows  # and the token of the start


@pytest.mark.parametrize(
    "name", ["llava", "idefics3", "qwen2_vl", "blip_2", "blip_2_t5", "instructblip_t5"]
)
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


@pytest.mark.parametrize("name", ["llava", "qwen2_vl", "idefics3"])
def test_demonstrations_stand_before_the_question(folders, name, capsys):
    shown = Demonstration("is it blue?", "It is blue. Answer: yes", tiny.image(48, 32, 9))
    said = Demonstration("is it blue?", "It is blue. Answer: yes")
    model = load(folders, name)
    for demonstration in (shown, said):
        asked = [
            Question("is it red?", ("yes", "no"), (demonstration,)),
            Question("and green?", ("yes", "no"), (demonstration,), opening="It is. Answer:"),
        ]
        found = model.answer([IMAGES[0]], [asked])
        assert nlls(found) == close(load(folders, name, sharing="none").answer(IMAGES[:1], [asked]))
        plain = model.answer([IMAGES[0]], [[Question("is it red?", ("yes", "no"))]])
        assert nlls(plain)[0] != pytest.approx(nlls(found)[0], rel=1e-3)
    assert capsys.readouterr().err == ""


def test_what_cannot_be_asked_is_said(folders, tmp_path):
    model = load(folders, "llava")
    with pytest.raises(UserError, match="option 1 is empty"):
        Question("what?", ("a", " "))
    [[long, short]] = model.answer(
        IMAGES[:1], [[Question("why " * 200, ("a", "b")), Question("why?", ("a", "b"))]]
    )
    assert (long.left_out, long.scores) == ("context", ())
    assert len(short.scores) == 2
    plain = tiny_vlm.save_llava(tmp_path / "plain", template=None)
    with pytest.raises(UserError, match=r"no chat template: give a template.*model\.prompt="):
        VisionLanguageModel.load(plain)
    told = VisionLanguageModel.load(plain, prompt="USER: {image}\n{question} ASSISTANT:")
    assert len(told.answer(IMAGES, QUESTIONS)) == 3
    with pytest.raises(UserError, match=r"no place for an image.*put \{image\}"):
        VisionLanguageModel.load(plain, prompt="{question}").answer(IMAGES, QUESTIONS)


def test_scores_that_are_no_numbers_are_refused(folders):
    model = load(folders, "llava", sharing="none")
    with torch.no_grad():
        model.model.get_output_embeddings().weight[5:9] = torch.inf
    with pytest.raises(UserError, match=r"has a likelihood of|depend on the option"):
        model.answer(IMAGES[:1], QUESTIONS[:1])


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
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = load(folders, name)
    questions = [QUESTIONS[0][0], QUESTIONS[1][0], QUESTIONS[0][0], Question("why " * 300)]
    found = model.write([*IMAGES, IMAGES[0]], questions, max_new_tokens=6)
    assert found[3] == Answered(left_out="context")
    found = [one.text for one in found]
    processor = AutoProcessor.from_pretrained(folders[name])
    plain = AutoModelForImageTextToText.from_pretrained(folders[name]).eval()
    for picture, question, answer in zip(IMAGES, questions, found, strict=False):
        prompt = model.prompts.text(question, True)
        given = processor(
            images=[picture], text=[prompt], return_tensors="pt",
            add_special_tokens=not prompt.startswith("<s>"),
        )  # fmt: skip
        ids = plain.generate(**given, max_new_tokens=6, do_sample=False)
        cut = given["input_ids"].shape[1] if ids.shape[1] > 7 else 0
        expected = processor.tokenizer.decode(ids[0, cut:], skip_special_tokens=True)
        assert answer == " ".join(expected.split())
    assert len(set(found)) > 1


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
