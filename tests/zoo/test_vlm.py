"""The tiny vision-language models: what they learn from, and that a command makes them."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cfaug.core.answers import Question
from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.core.rng import generator
from cfaug.core.weights import resolve
from cfaug.data.sources.question_sets import read_questions
from cfaug.models.prompts import Prompts
from cfaug.models.task_specs import VisionLanguage
from cfaug.worlds.shapescapes.question_parts import SCENE, make_questions
from cfaug.worlds.shapescapes.settings import STYLES, WorldSettings
from cfaug.worlds.shapescapes.world import SIDE, gathering_of, render_gathering
from tests.worlds.shapescapes.read_gatherings import answer
from tests.zoo.cards import card
from zoo.model import IMAGE
from zoo.vlm import VlmSettings, evaluate, main, main_questions
from zoo.vlm_training import (
    ATTRIBUTES,
    CELLS,
    EMPTY,
    LanguageLoss,
    Lessons,
    _jitter,
    build_model,
    build_processor,
    build_tokenizer,
    draw_images,
    draw_pictures,
    encode,
    encode_batch,
    load,
    tokenize_questions,
    world_of,
)

NAMES = ("vlm-basic-0", "vlm-both-0")


@pytest.fixture(scope="module")
def lessons() -> Lessons:
    pictures = draw_pictures(3, "test", 12)
    torch.manual_seed(0)
    features = encode(build_model().model.vision_tower.eval(), pictures.pixels)
    questions = tokenize_questions(
        draw_images(3, "test", 0, 12), build_tokenizer(), basic_alone=False
    )
    rng = generator(3, "zoo", "vlm", "order")
    return Lessons(features, pictures.things, questions, rng, basic_steps=2)


def test_every_word_of_the_questions_has_a_token_of_its_own() -> None:
    tokenizer = build_tokenizer()
    texts = [
        text
        for image in draw_images(1, "test-words", 0, 90)
        for question in image.questions
        for text in (question.text, *question.options)
    ]
    assert tokenizer.unk_token_id not in {
        token for ids in tokenizer(texts).input_ids for token in ids
    }
    assert max(len(ids) for ids in tokenizer(texts).input_ids) < 40


def test_questions_are_learnt_as_they_are_asked(tmp_path: Path) -> None:
    prompts, tokenizer = Prompts(build_processor(), None, tmp_path), build_tokenizer()
    images = draw_images(1, "test-prompts", 0, 6)
    learnt = tokenize_questions(images, tokenizer, basic_alone=False)
    for image, of_image in zip(images, learnt, strict=True):
        for asked, question in zip(image.questions, of_image, strict=True):
            text = prompts.text(Question(asked.text, asked.options), image=True)
            ids = prompts.tokens(text)
            assert ids == [tokenizer.convert_tokens_to_ids(IMAGE), *question.ids[: question.prompt]]
            option = prompts.option(text, ids, str(asked.right))
            assert option.ids[option.start :] == question.ids[question.prompt : -1]
            assert question.ids[-1] == tokenizer.eos_token_id
            words = (
                tokenizer.convert_ids_to_tokens(token) for token in (question.right, question.wrong)
            )
            right, wrong = words
            [other] = [text for text in asked.options if text != asked.right]
            assert right in str(asked.right).split()
            assert right not in other.split()
            assert wrong in other.split()
            assert wrong not in str(asked.right).split()


def test_the_cells_of_a_picture_hold_what_its_scene_says() -> None:
    pictures, images = draw_pictures(1, "test-cells", 6), draw_images(1, "test-cells", 0, 6)
    assert pictures.pixels.shape == (12, 3, 72, 72)
    for image, things in zip(images, pictures.things, strict=True):
        cells = {
            (row, column): tuple(
                values[number]
                for values, number in zip(
                    ATTRIBUTES.values(), things[row * SIDE + column], strict=True
                )
            )
            for row in range(SIDE)
            for column in range(SIDE)
            if things[row * SIDE + column][0] != EMPTY
        }
        assert cells == {
            (thing.row, thing.column): (thing.shape, thing.colour, thing.size)
            for thing in gathering_of(image.extra[SCENE]).things
        }


def test_no_scene_is_in_a_part_of_the_world() -> None:
    trained = {
        json.dumps(image.extra[SCENE], sort_keys=True) for image in draw_images(0, "p", 0, 30)
    }
    settings = world_of(0).settings
    for part in ("train", "test"):
        images = islice(make_questions(settings, part), 60)
        assert not trained & {json.dumps(image.extra[SCENE], sort_keys=True) for image in images}


def test_more_pairs_begin_with_those_of_fewer() -> None:
    few, more = (draw_pictures(2, "test-more", count) for count in (3, 5))
    assert np.array_equal(more.pixels[:6], few.pixels)
    assert np.array_equal(more.things[:6], few.things)


@pytest.mark.slow
def test_processes_change_no_picture() -> None:
    serial, parallel = (draw_pictures(2, "test-processes", 252, count) for count in (1, 2))
    assert np.array_equal(serial.pixels, parallel.pixels)
    assert np.array_equal(serial.things, parallel.things)


def test_a_mirrored_picture_has_mirrored_cells() -> None:
    pictures = draw_pictures(2, "test-mirror", 6)
    seen, things = _jitter(pictures.pixels, pictures.things, np.random.default_rng(0), reach=0)
    before = pictures.things.reshape(-1, SIDE, SIDE, 3)
    turned = 0
    for at in range(12):
        mirrored = not np.array_equal(seen[at], pictures.pixels[at])
        turned += mirrored
        assert np.array_equal(seen[at], pictures.pixels[at][:, :, :: -1 if mirrored else 1])
        after = things[at].reshape(SIDE, SIDE, 3)
        assert np.array_equal(after, before[at][:, :: -1 if mirrored else 1])
    assert 0 < turned < 12


def test_a_batch_asks_both_pictures_of_a_pair_the_same(lessons: Lessons) -> None:
    for step, basic in ((0, True), (2, False)):
        drawn = lessons.draw(step, 8)
        assert len(drawn) == 8
        for (image, first), (twin, second) in zip(drawn[::2], drawn[1::2], strict=True):
            assert (image + 1, image % 2) == (twin, 0)
            assert first.ids[: first.prompt] == second.ids[: second.prompt]
            assert (first.right, first.wrong) == (second.wrong, second.right)
        first_words = {lessons.questions[image][0].ids[0] for image, _ in drawn}
        kinds = {question.ids[0] for _, question in drawn} <= first_words
        assert kinds or not basic
    counts = {len(question.ids) for step in range(2, 30) for _, question in lessons.draw(step, 8)}
    assert max(counts) > 20


def test_the_loss_is_that_of_one_question_at_a_time(lessons: Lessons) -> None:
    """Plainly: transformers' own loss of the answer, and the two options' logits."""
    torch.manual_seed(1)
    model = build_model().eval()
    drawn = lessons.draw(5, 8)
    rows = [image for image, _ in drawn]
    things = torch.from_numpy(lessons.things)[rows]
    loss = LanguageLoss(model, alignment=0.0)(
        lessons.features[rows], things, [question for _, question in drawn]
    )
    image = build_tokenizer().convert_tokens_to_ids(IMAGE)
    tokens, pairs = [], []
    for row, question in drawn:
        cells = model.model.multi_modal_projector(lessons.features[row][None])
        ids = torch.tensor([[image] * CELLS + question.ids])
        words = model.get_input_embeddings()(ids)
        words[:, :CELLS] = cells
        logits = model(inputs_embeds=words).logits[0]
        answer = range(CELLS + question.prompt, ids.shape[1])
        tokens += [F.cross_entropy(logits[at - 1], ids[0, at]) for at in answer]
        two = logits[CELLS + question.prompt + question.place - 1][[question.right, question.wrong]]
        pairs.append(F.cross_entropy(two, torch.tensor(0)))
    wanted = torch.stack(tokens).mean() + torch.stack(pairs).mean()
    assert loss.item() == pytest.approx(wanted.item(), abs=1e-4)
    aligned = LanguageLoss(model, alignment=0.5)(
        lessons.features[rows], things, [question for _, question in drawn]
    )
    assert aligned > loss


def test_the_model_reads_the_cells_row_by_row() -> None:
    """What stands for a cell is the tower's map at that row and column."""
    torch.manual_seed(2)
    model = build_model().eval()
    pixels = torch.randn(2, 3, 72, 72)
    with torch.no_grad():
        cells = encode_batch(model.model.vision_tower, pixels)
        features = model.model.get_image_features(pixels).pooler_output
        features = torch.stack(list(features))  # older versions of transformers: one of each image
        assert torch.allclose(model.model.multi_modal_projector(cells), features, atol=1e-5)
        changed = pixels.clone()
        changed[:, :, 24:48, 48:] = 0  # the middle row's right cell
        moved = (encode_batch(model.model.vision_tower, changed) - cells).norm(dim=-1)
    assert moved.argmax(dim=1).tolist() == [5, 5]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"questions": "counterfactual"}, "choose from basic, both"),
        ({"batch_size": 10}, "a multiple of 4"),
        ({"pairs": 10}, "20 pictures of pairs=10"),
        ({"pairs": 70, "tower_batch_size": 200}, "140 pictures of pairs=70"),
    ],
)
def test_settings_that_cannot_be_learnt_from_are_refused(given: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        VlmSettings(out="x", **given)


def test_shipped_weights_answer_scenes_they_have_not_seen() -> None:
    shipped = card(NAMES[0])["metrics"]
    settings = VlmSettings(out="x", seed=5, held_out=12)
    measured = evaluate(resolve(f"zoo:{NAMES[0]}"), settings, "test-shipped")
    assert measured["acc_b"] == pytest.approx(shipped["acc_b"], abs=0.15)
    assert measured["acc_c"] == pytest.approx(shipped["acc_c"], abs=0.15)


def test_the_first_model_sees_and_does_not_reason() -> None:
    basic = card("vlm-basic-0")["metrics"]
    assert abs(basic["acc_c"] - 0.5) < 0.05
    assert abs(basic["phi"]) < 0.1


def test_the_second_model_goes_on_from_the_first_with_its_tower() -> None:
    basic, both = (load(f"zoo:{name}") for name in NAMES)
    settings = card("vlm-both-0")["settings"]
    assert (settings["start"], settings["questions"]) == ("zoo:vlm-basic-0", "both")
    for (name, first), second in zip(
        basic.model.vision_tower.named_parameters(),
        both.model.vision_tower.parameters(),
        strict=True,
    ):
        assert torch.equal(first, second), name


@pytest.mark.slow
def test_the_command_goes_on_from_a_model_with_its_tower(tmp_path: Path) -> None:
    small = ["pairs=12", "steps=3", "tower_batch_size=4", "batch_size=8", "held_out=6"]
    folder = tmp_path / "made"
    start = ["questions=both", "start=zoo:vlm-basic-0", "basic_steps=1", "seed=4", f"out={folder}"]
    assert main([*small, *start]) == 0
    before, after = (
        VisionLanguage(name).load().model.model for name in ("zoo:vlm-basic-0", str(folder))
    )
    for (name, first), second in zip(
        before.vision_tower.named_parameters(), after.vision_tower.parameters(), strict=True
    ):
        assert torch.equal(first, second), name
    assert not torch.equal(*(model.get_input_embeddings().weight for model in (before, after)))
    written = json.loads((folder / "card.json").read_text())
    assert written["metrics"]["n"] == 12
    assert "questions=both" in written["command"]
    assert {"acc_b", "acc_c", "acc_c_count"} <= set(written["metrics"])


def write(folder, *given):
    assert main_questions([f"out={folder}", "image_size=32", "seed=5", *given]) == 0
    return read_questions(folder)


def test_a_file_has_the_questions_and_pictures_of_its_part(tmp_path):
    stored = write(tmp_path / "set", "pairs=7")
    made = list(make_questions(WorldSettings(seed=5, image_size=32, style="drawing",
                                             vqa_test_pairs=7), "test"))  # fmt: skip
    assert [(o.key, o.group, o.category, o.questions) for o in stored] == [
        (o.key, o.group, o.category, o.questions) for o in made
    ]
    for image in stored:
        scene = gathering_of(image.extra[SCENE])
        pixels = render_gathering(scene, 32, STYLES["drawing"])
        assert (np.asarray(decode_image(image.image.read(), "it")) == pixels).all()
        for question in image.questions:
            assert answer(question.text, image.extra[SCENE]) == question.right


def test_more_pairs_begin_with_those_of_fewer_and_parts_differ(tmp_path):
    few, many = (write(tmp_path / str(n), f"pairs={n}") for n in (2, 4))
    lines = [(tmp_path / str(n) / "questions.jsonl").read_text().splitlines() for n in (2, 4)]
    assert lines[0] == lines[1][: len(few)]
    assert len(many) == 8
    train = write(tmp_path / "train", "pairs=2", "part=train")
    assert [image.extra for image in train] != [image.extra for image in few]


@pytest.mark.parametrize("given", ["part=ve", "pairs=0", "style=oil"])
def test_a_setting_that_is_invalid_is_named_and_nothing_is_written(tmp_path, given):
    with pytest.raises(
        UserError, match=f"{given}( should be a whole number of at least 1|: choose from)"
    ):
        main_questions([f"out={tmp_path / 'set'}", given])
    assert not (tmp_path / "set").exists()
