"""Question sets as released by their authors, with a question or a pair in each row.

Columns were taken from the releases, or from code that reads them; each form names its source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cfaug.core.errors import UserError
from cfaug.data.questions import (
    BASIC,
    CLOSED,
    COUNTERFACTUAL,
    DISPUTED,
    EXPECTED_BIAS,
    GROUPS,
    NO_OPTION,
    PLAIN,
    STATES_FORM,
    QuestionImage,
    SourceQuestion,
)
from cfaug.data.sources.question_sets.rows import (
    YES_NO,
    QuestionForm,
    SetRow,
    read_each,
    split_options,
    yes_or_no,
)
from cfaug.data.sources.row import ErrorCollector, clean_key, group_name, is_number

# C-VQA (Zhang et al., 2023), https://github.com/Letian2003/C-VQA: a question, and the same question
# under a condition, a row. Of C-VQA-Real the answers are numbers, yes or no, without options; of
# C-VQA-Synthetic the question ends with four options, and the answer is a letter.

SELECT = re.compile(r"\s*Select the correct answer:\s*", re.IGNORECASE)


def _read_c_vqa(rows: Iterable[SetRow], errors: ErrorCollector) -> list[QuestionImage]:
    every = list(rows)
    answers = {
        group_name(row.fields[name]).strip() for row in every for name in ("answer", "new answer")
    }
    numbers = tuple(sorted((answer for answer in answers if answer.isdecimal()), key=int))
    images = []
    for number, row in enumerate(every):
        with errors.collect():
            images.append(
                QuestionImage(
                    key=f"{number:06d}",
                    group=row.text("img_path"),
                    image=row.image("img_path"),
                    category=row.text("type"),
                    questions=(
                        _c_vqa_question(row, BASIC, "query", "answer", numbers),
                        _c_vqa_question(row, COUNTERFACTUAL, "new query", "new answer", numbers),
                    ),
                )
            )
    return images


def _c_vqa_question(
    row: SetRow, kind: str, query: str, answer: str, numbers: tuple[str, ...]
) -> SourceQuestion:
    """Read a question; without options, they are yes and no, or all numbers of the set.

    The paper compares generated text; ranking needs options, which are therefore all answers to
    questions of the type.
    """
    text, given = row.text(query), row.text(answer)
    stem, *listed = SELECT.split(text)
    if listed:
        options = split_options(listed[0], "ABCDEFGH", "{}:")
        if len(listed) > 1 or not options or not stem or not all(options):
            raise UserError(f"{row.where}: {query!r} should end with its options, A:... B:...")
        right = option_of(given, "ABCDEFGH", options)
        return SourceQuestion(kind, kind, stem, tuple(options), right, {"answer": given})
    given = group_name(given)
    allowed = YES_NO if given.lower() in YES_NO else numbers
    right = allowed.index(given.lower()) if given.lower() in allowed else NO_OPTION
    extra = {"answer": given, CLOSED: allowed is numbers}
    return SourceQuestion(kind, kind, text, allowed, right, extra)


def option_of(given: str, letters: str, options: Sequence[str]) -> int:
    """Return the number of the option that an answer names by its letter or its text.

    >>> [option_of(answer, "AB", ["Open", "Shut"]) for answer in ("B", "(a)", "shut", "1")]
    [1, 0, 1, -1]
    """
    plain = given.strip("(). ").casefold()
    if len(plain) == 1 and plain in (marks := letters[: len(options)].casefold()):
        return marks.index(plain)
    texts = [option.strip("(). ").casefold() for option in options]
    return texts.index(plain) if plain in texts and not is_number(plain) else NO_OPTION


C_VQA = QuestionForm(
    "C-VQA",
    ("img_path", "query", "answer", "new query", "new answer", "type"),
    _read_c_vqa,
    ("C-VQA-Real_images", "C-VQA-Synthetic_images", "C-VQA-Real", "C-VQA-Synthetic"),
)

# NaturalBench (Li et al., 2024), Hub BaiqiL/NaturalBench: two images and two questions a row. Two
# options follow a question of several choices: "... Option: A:...; B:...;".

ANSWERS = {(i, q): f"Image_{i}_Question_{q}" for i in (0, 1) for q in (0, 1)}
OPTION = re.compile(r"\s*Options?:\s*(?=A\s*[:.])", re.IGNORECASE)


def _read_naturalbench(row: SetRow) -> Iterator[QuestionImage]:
    index, kind = row.text("Index"), row.text("Question_Type")
    for i in (0, 1):
        questions = []
        for q in (0, 1):
            text, given = row.text(f"Question_{q}"), row.text(ANSWERS[i, q])
            if kind == "yes_no":
                options, answer = list(YES_NO), yes_or_no(row, ANSWERS[i, q])
            else:
                stem, *listed = OPTION.split(text)
                options = split_options(listed[0], "AB", "{}:") if len(listed) == 1 else []
                if not stem or len(options) != 2 or not all(options) or given not in ("A", "B"):
                    raise UserError(
                        f"{row.where}: Question_{q} should end with 'Option: A:...; B:...;' and "
                        f"{ANSWERS[i, q]} should be A or B, not {given!r:.40}"
                    )
                text, answer = stem, "AB".index(given)
            extra = {"group": index, "question": q, "image": i}
            questions.append(SourceQuestion(f"q{q}", PLAIN, text, tuple(options), answer, extra))
        key = clean_key(f"{index}-{i}")
        yield QuestionImage(key, index, row.image(f"Image_{i}"), kind, tuple(questions))


NATURALBENCH = QuestionForm(
    "NaturalBench",
    ("Index", "Question_Type", "Question_0", "Question_1", "Image_0", "Image_1", *ANSWERS.values()),
    read_each(_read_naturalbench),
)

# VisMin (Awal et al., 2024), Hub mair-lab/vismin-bench: two images and two captions a row. Of its
# four questions, the two about a single image are read; the others show both images to the model.

VISMIN_OPTIONS = re.compile(r"\(A\)\s*(.+?),?\s*or\s*\(B\)\s*(.+?)\s*\?\s*Choices:", re.IGNORECASE)
PLACEHOLDER = re.compile(r"<image(?:_\d)?>\s*")


def _read_vismin(row: SetRow) -> Iterator[QuestionImage]:
    name = row.text("id")
    for i in (0, 1):
        prompt = PLACEHOLDER.sub("", row.text(f"text_question_{i}"))
        match = VISMIN_OPTIONS.search(prompt)
        if match is None:
            raise UserError(
                f"{row.where}: text_question_{i} should be '... (A) TEXT, or (B) TEXT? Choices: A, "
                f"B. ...', not {prompt!r:.80}"
            )
        right = row.text(f"text_{i}")
        plain = [group.strip().rstrip(".").lower() for group in match.groups()]
        wanted = right.rstrip(".").lower()
        answer = plain.index(wanted) if wanted in plain else NO_OPTION
        extra = {"answer": right, "group": name, "question": i, "image": i}
        stem = prompt[: match.start()].strip().rstrip(":")
        text = f"{stem}: {', or '.join(match.groups())}?"
        question = SourceQuestion("text", PLAIN, text, match.groups(), answer, extra)
        image = row.image(f"image_{i}")
        yield QuestionImage(
            clean_key(f"{name}-{i}"), name, image, row.text("category"), (question,)
        )


VISMIN = QuestionForm(
    "VisMin",
    ("id", "image_0", "image_1", "text_0", "text_1", "category", "text_question_0",
     "text_question_1"),
    read_each(_read_vismin),
)  # fmt: skip

# HallusionBench (Guan et al., 2024), https://github.com/tianyi-lab/HallusionBench, and on the Hub:
# a question a row; a figure and the questions about it share set_id and figure_id. Without a file
# name the question has no image.

HALLUSION_KEPT = ("subcategory", "set_id", "figure_id", "question_id", "visual_input")


def _read_hallusion(rows: Iterable[SetRow], errors: ErrorCollector) -> list[QuestionImage]:
    images: dict[str, QuestionImage] = {}
    for row in rows:
        with errors.collect():
            parts = [row.text(name) for name in ("category", "subcategory", "set_id", "figure_id")]
            answer = row.text("gt_answer")
            if answer not in ("0", "1"):
                raise UserError(
                    f"{row.where}: gt_answer={answer!r} is invalid: choose from 0 (no), 1 (yes)"
                )
            extra: dict[str, Any] = {name: row.text(name) for name in HALLUSION_KEPT}
            group = "-".join(parts[:3])
            shown = row.fields.get("filename") is not None
            # As in the authors' get_eval_pair_all and get_eval_fig; questions without a figure are
            # not in fAcc.
            groups = {"q_acc": f"{group}-{extra['question_id']}"}
            groups |= {"f_acc": "-".join(parts)} if shown else {}
            question = SourceQuestion(
                f"q{clean_key(extra['question_id'])}", PLAIN, row.text("question"), YES_NO,
                YES_NO.index("yes" if answer == "1" else "no"),
                {**extra, "group": group, GROUPS: groups},
            )  # fmt: skip
            image = None
            if shown:
                image = row.image("filename" if row.embedded is None else "image")
            key = clean_key("-".join(parts).lower())
            before = images.get(key)
            try:
                if before is None:
                    images[key] = QuestionImage(key, group, image, parts[0], (question,))
                else:
                    images[key] = replace(before, questions=(*before.questions, question))
            except UserError as error:
                raise UserError(f"{row.where}: {error}") from error
    return list(images.values())


HALLUSION_BENCH = QuestionForm(
    "HallusionBench",
    ("category", *HALLUSION_KEPT, "question", "gt_answer", "filename"),
    _read_hallusion,
    ("hallusion_bench", "data/hallusion_bench"),
)

# MMVP (Tong et al., 2024), Hub MMVP/MMVP: Questions.csv, two rows a pair, and "MMVP Images/1.jpg".
# lmms-eval found the answers of two pairs swapped (https://github.com/tsb0601/MMVP/issues/30); they
# are read unchanged, and named in the report.

MMVP_CORRECTED: Mapping[str, str] = {"99": "b", "100": "a", "279": "b", "280": "a"}
"""Answers in ``lmms-lab-eval/MMVP``, by ``Index``."""


def _read_mmvp(row: SetRow) -> Iterator[QuestionImage]:
    index = row.text("Index")
    if not index.isdecimal() or int(index) < 1:
        raise UserError(f"{row.where}: Index={index!r} should be a whole number from 1")
    options = split_options(row.text("Options"), "abcd", "({})")
    if not options or not all(options):
        raise UserError(
            f"{row.where}: Options={row.text('Options')!r:.80} should be '(a) TEXT (b) TEXT'"
        )
    letter = row.text("Correct Answer").strip("() ").lower()
    answer = option_of(letter, "abcd", options)
    pair, member = divmod(int(index) - 1, 2)
    extra = {"answer": letter, "group": str(pair), "question": 0, "image": member}
    if (corrected := MMVP_CORRECTED.get(index, letter)) != letter:
        extra[DISPUTED] = f"row {index}: ({letter}); lmms-eval says ({corrected})"
    image = row.photos.find(f"{index}.jpg", row.where)
    question = SourceQuestion("q0", PLAIN, row.text("Question"), tuple(options), answer, extra)
    yield QuestionImage(f"{int(index):03d}", str(pair), image, "", (question,))


MMVP = QuestionForm(
    "MMVP",
    ("Index", "Question", "Options", "Correct Answer"),
    read_each(_read_mmvp),
    ("MMVP Images", "MMVP_Images"),
)

# VLMs Are Biased (Vo et al., 2025), Hub anvo25/vlms-are-biased: a question about a counterfactual
# image a row, such as a logo of three stripes with a fourth, the right answer, and the one that is
# right of the original. A case is drawn in three sizes, with two questions about each.

BRACKETS = "curly bracket"
"""Words of a prompt that asks for an answer in them, such as {4}."""
VERSION = re.compile(r"_(?:Q\d+|px\d+)(?=_|$)", re.IGNORECASE)
"""The parts of an ID that differ among the rows of a case."""
BIASED_KEPT = ("sub_topic", "type_of_question", "with_title", "pixel")


def _read_vlms_are_biased(rows: Iterable[SetRow], errors: ErrorCollector) -> list[QuestionImage]:
    """Read the questions, with options: yes and no, or all answers of the same form in a topic.

    The released scripts compare generated text; ranking needs options. With the right and the
    memorised answer alone, every wrong answer would be the memorised one.
    """
    every: list[tuple[SetRow, str, str, str]] = []
    of_topic: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        with errors.collect():
            topic, right, memorised = row.text("topic"), _bare(row.text("ground_truth")), ""
            if row.fields["expected_bias"] not in (None, ""):
                memorised = _bare(row.text("expected_bias"))
            for text in filter(None, (right, memorised)):
                of_topic.setdefault((topic, _form(text)), {}).setdefault(text.casefold(), text)
            every.append((row, topic, right, memorised))
    images: dict[str, QuestionImage] = {}
    for number, (row, topic, right, memorised) in enumerate(every):
        with errors.collect():
            prompt, name, form = row.text("prompt"), row.text("ID"), _form(right)
            texts = ["Yes", "No"] if form == "yes_no" else list(of_topic[topic, form].values())
            texts = sorted(texts, key=int) if form == "number" else texts
            plain = [text.casefold() for text in texts]
            asks = BRACKETS in prompt.lower()
            shown = [f"{{{text}}}" if asks else text for text in texts]
            extra = {kept: row.fields[kept] for kept in BIASED_KEPT if kept in row.fields}
            extra |= {"answer": right, CLOSED: form != "yes_no", STATES_FORM: asks}
            if memorised:
                known = memorised.casefold() in plain
                extra[EXPECTED_BIAS] = (
                    shown[plain.index(memorised.casefold())] if known else memorised
                )
            question = SourceQuestion(
                "q", PLAIN, prompt, tuple(shown), plain.index(right.casefold()), extra
            )
            key = clean_key(name)
            key = f"{key}-{number}" if key in images else key
            image = row.image("image_path" if row.embedded is None else "image")
            images[key] = QuestionImage(key, VERSION.sub("", name), image, topic, (question,))
    return list(images.values())


def _bare(answer: str) -> str:
    return answer.strip("{} ")


def _form(answer: str) -> str:
    """Return the form of an answer, within which answers are alternatives."""
    if answer.lower() in YES_NO:
        return "yes_no"
    return "number" if answer.isdecimal() else "text"


VLMS_ARE_BIASED = QuestionForm(
    "VLMs Are Biased",
    ("ID", "topic", "prompt", "ground_truth", "expected_bias", "type_of_question"),
    _read_vlms_are_biased,
)
