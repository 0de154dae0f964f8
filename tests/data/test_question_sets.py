from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.core.outputs import RECORD
from cfaug.core.pixels import content_digest
from cfaug.core.types import CounterfactualSet, Member, SourceImage
from cfaug.data.export import export_questions, write_questions
from cfaug.data.questions import (
    CATEGORY,
    NO_OPTION,
    QUESTION,
    QuestionImage,
    SourceQuestion,
    details_of,
    example_of,
    question_of,
    questions_of,
)
from cfaug.data.sources.parquet import MAX_BYTES
from cfaug.data.sources.question_sets import FORMS, read_questions
from cfaug.data.sources.question_sets.rows import ParquetColumn
from tests.data.question_files import (
    biased_row,
    encode_image,
    hallusion_record,
    naturalbench_row,
    own_record,
    put_image,
    vismin_row,
    vlms_are_biased,
    write_csv,
    write_own,
    write_parquet,
    write_streams,
)


def refusal(path: Path, roots: tuple[Path, ...] = ()) -> str:
    with pytest.raises(UserError) as caught:
        read_questions(path, roots)
    return str(caught.value)


def test_our_form_is_read_with_all_that_it_says(tmp_path):
    file = write_own(tmp_path, [own_record(0), own_record(1)])
    entries = read_questions(file)
    assert [entry.key for entry in entries] == ["0", "1"]
    assert [entry.group for entry in entries] == ["100", "101"]
    first = entries[0]
    assert (first.category, first.extra) == ("count", {"coco_id": 100})
    assert [question.id for question in first.questions] == ["basic", "c1", "c2", "c3", "c4"]
    assert [question.kind for question in first.questions] == ["basic"] + ["counterfactual"] * 4
    assert first.questions[0] == SourceQuestion(
        "basic", "basic", "How many dogs are there?", ("2", "3"), 0
    )
    second = first.questions[2]
    assert second.right == "12"
    assert second.answer == 1
    assert second.extra == {"presupposition": "2 more dogs came", "source": "llm", "verified": True}
    assert isinstance(first.image, SourceImage)
    assert first.image.read() == encode_image(0)
    assert first.image.digest == content_digest(encode_image(0)).hex()
    assert read_questions(tmp_path) == entries  # the folder, its only list


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image": "gone.png"}, "line 2: there is no image 'gone.png'"),
        ({"category": ""}, "line 2: 'category' should be a text"),
        ({"basic": None}, "line 2: basic: a question should be {q, options, answer}"),
        ({"basic": {"q": "Who?", "options": ["a", "b"]}}, "basic: 'answer' is missing"),
        ({"basic": {"q": "Who?", "options": "ab", "answer": 0}}, "'options' should be a list"),
        ({"basic": {"options": ["a", "b"], "answer": 0}}, "basic: 'q' should be a text, not None"),
        ({"basic": {"q": "Who?", "options": ["a", "b"], "answer": True}}, "not True"),
        (
            {"basic": {"q": "Who?", "options": ["a", ""], "answer": 0}},
            "'option 1' should be a text",
        ),
        ({"counterfactuals": {}}, "'counterfactuals' should be a list"),
        ({"id": "0"}, "the id '0' is duplicated"),
        ({"image": "../1.png"}, "leads out of"),
    ],
)
def test_a_field_or_image_that_is_missing_is_named(tmp_path, changes, said):
    file = write_own(tmp_path, [own_record(0), own_record(1)])
    lines = [own_record(0), own_record(1, **changes)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert said in refusal(file)
    (tmp_path / "0.png").unlink()  # several are named at once
    both = refusal(file)
    assert "line 1: there is no image '0.png'" in both
    assert said in both or "duplicated" in said


def test_an_answer_may_be_the_text_of_an_option(tmp_path):
    basic = {"q": "Who is it?", "options": ["a dog", "a cat"], "answer": "a  cat"}
    other = {**basic, "answer": "a cow"}
    record = own_record(0, basic=basic, counterfactuals=[other, {**basic, "answer": None}])
    questions = read_questions(write_own(tmp_path, [record]))[0].questions
    assert [question.answer for question in questions] == [1, NO_OPTION, None]
    assert questions[1].extra["answer"] == "a cow"
    assert [question.right for question in questions] == ["a cat", None, None]


def test_images_may_lie_in_a_folder_that_is_permitted(tmp_path):
    file = write_own(tmp_path / "list", [own_record(0)])
    (tmp_path / "list" / "0.png").unlink()
    put_image(tmp_path / "photos" / "0.png", 7)
    assert "paths.image_roots" in refusal(file)
    image = read_questions(file, [tmp_path / "photos"])[0].image
    assert image.read() == encode_image(7)


def test_an_image_is_checked_when_it_is_read(tmp_path):
    file = write_own(tmp_path, [own_record(0)])
    image = read_questions(file)[0].image
    photo = tmp_path / "0.png"
    for harm, said in (
        (lambda: photo.write_bytes(b"no image"), "not an image"),
        (lambda: photo.write_bytes(b""), "0 bytes"),
        (lambda: os.truncate(photo, MAX_BYTES + 1), "at most"),  # sparse
        (photo.unlink, "cannot be read"),
    ):
        harm()
        with pytest.raises(UserError, match=said):
            image.read()
    put_image(photo, 0)
    assert image.digest
    put_image(photo, 99)
    with pytest.raises(UserError, match="was replaced"):
        image.read()


def test_c_vqa_gives_numbers_the_answers_of_the_whole_set(tmp_path):
    names = ("img_path", "query", "answer", "new query", "new answer", "type")
    rows = [
        ("a.jpg", "How many cows?", "1", "How many if 2 came?", "3", "direct"),
        ("a.jpg", "How many pigs?", "11", "How many if 7 left?", "4", "direct"),
        ("b.jpg", "Is it on?", "Yes", "Would it be on if it was off?", "no", "boolean"),
        ("b.jpg", "What is it?", "a cow", "What if it was a pig?", "3", "indirect"),
    ]
    file = write_csv(tmp_path / "C-VQA.csv", [dict(zip(names, row, strict=True)) for row in rows])
    assert "line 2: there is no image 'a.jpg'" in refusal(tmp_path)
    for name in ("a.jpg", "b.jpg"):
        put_image(tmp_path / "C-VQA-Real_images" / name)
    entries = read_questions(file)
    assert [entry.group for entry in entries] == ["a.jpg", "a.jpg", "b.jpg", "b.jpg"]
    assert len({entry.key for entry in entries}) == 4
    assert entries[0].image == entries[1].image
    basic, counterfactual = entries[1].questions
    assert basic.options == ("1", "3", "4", "11")
    assert (basic.right, counterfactual.right) == ("11", "4")
    assert [question.kind for question in entries[1].questions] == ["basic", "counterfactual"]
    assert entries[2].questions[0].options == ("yes", "no")
    assert [question.right for question in entries[2].questions] == ["yes", "no"]
    assert entries[3].questions[0].answer == NO_OPTION
    assert entries[2].category == "boolean"


def test_c_vqa_synthetic_has_its_options_in_the_question(tmp_path):
    row = {
        "img_path": "a.png",
        "query": "How many dots? Select the correct answer:A:16  B:17  C:12  D:13",
        "answer": "C",
        "new query": "How many if one left? Select the correct answer:A:7  B:11  C:3  D:9",
        "new answer": "A",
        "type": "abs_counting_1",
    }
    put_image(tmp_path / "images" / "a.png")
    basic, counterfactual = read_questions(write_csv(tmp_path / "q.csv", [row]))[0].questions
    assert (basic.text, basic.options, basic.right) == (
        "How many dots?",
        ("16", "17", "12", "13"),
        "12",
    )
    assert (counterfactual.text, counterfactual.right) == ("How many if one left?", "7")
    broken = {**row, "query": "How many dots? Select the correct answer:16"}
    assert "should end with its options" in refusal(write_csv(tmp_path / "q.csv", [broken]))


def test_naturalbench_is_two_questions_about_two_images(tmp_path):
    rows = [naturalbench_row(i, ("yes_no", "multiple_choice")[i % 2]) for i in range(5)]
    write_parquet(tmp_path / "data" / "train-00000-of-00001.parquet", rows)
    entries = read_questions(tmp_path)
    assert len(entries) == 10
    assert len({entry.key for entry in entries}) == 10
    assert [entry.group for entry in entries[:4]] == ["0", "0", "1", "1"]
    pattern = [[q.answer for q in entry.questions] for entry in entries]
    assert pattern == [[0, 1], [1, 0]] * 5
    several = entries[2].questions[0]
    assert (several.text, several.options) == ("Is the dog 1 up?", ("sitting", "lying"))
    assert several.extra == {"group": "1", "question": 0, "image": 0}
    assert entries[2].category == "multiple_choice"
    for entry in [*reversed(entries), *entries]:  # in any order
        i = entries.index(entry)
        assert entry.image.read() == encode_image(i), entry.key
        assert entry.image.digest == content_digest(encode_image(i)).hex()


def test_an_option_that_naturalbench_does_not_list_is_an_error(tmp_path):
    for changes in (
        {"Question_0": "Is it up?"},
        {"Image_0_Question_0": "C"},
        {"Question_1": "Is it? Option: A:x; B:;"},
    ):
        row = naturalbench_row(1, "multiple_choice") | changes
        write_parquet(tmp_path / "a.parquet", [row])
        assert "row 1" in refusal(tmp_path)
        assert "Option: A:" in refusal(tmp_path)
    write_parquet(tmp_path / "a.parquet", [naturalbench_row(1) | {"Image_1_Question_0": "maybe"}])
    assert "choose from yes, no" in refusal(tmp_path)


def test_an_embedded_image_that_is_missing_or_broken_is_named(tmp_path):
    row = naturalbench_row(0)
    row["Image_0"] = {"bytes": None, "path": "0.png"}
    row["Image_1"] = {"bytes": b"broken", "path": "1.png"}
    first, second = read_questions(write_parquet(tmp_path / "a.parquet", [row]))
    for entry, said in ((first, "holds no image bytes"), (second, "not an image")):
        with pytest.raises(UserError, match=said) as caught:
            entry.image.read()
        assert "row 1" in str(caught.value)


@pytest.mark.parametrize("home", ["", "data/test"])
def test_vismin_is_read_from_what_save_to_disk_writes(tmp_path, home):
    rows = [vismin_row(i) for i in range(3)]
    write_streams(tmp_path / home, rows)
    entries = read_questions(tmp_path)
    assert [entry.key for entry in entries] == ["0-0", "0-1", "2-0", "2-1", "1-0", "1-1"]
    question = entries[0].questions[0]
    assert question.text == "Does this image best match: A dog, or A cat?"
    assert (question.options, question.right) == (("A dog", "A cat"), "A cat")
    assert entries[1].questions[0].right == "A dog"
    assert entries[2].image.read() == encode_image(14)
    write_parquet(tmp_path / "hub" / "test-00000-of-00001.parquet", rows)
    hub = read_questions(tmp_path / "hub")
    assert sorted(entry.key for entry in hub) == sorted(entry.key for entry in entries)
    assert {entry.key: entry.questions for entry in hub} == {
        entry.key: entry.questions for entry in entries
    }


def test_a_parquet_column_reads_each_row_whatever_the_order(tmp_path):
    rows = [{"number": i} for i in range(40)]
    column = ParquetColumn(write_parquet(tmp_path / "a.parquet", rows, per_group=18), "number")
    for row in (0, 1, 17, 18, 39, 3, 3, 20, 35, 36, 0):
        assert column[row] == row
    with pytest.raises(UserError, match="row 41"):
        column[40]


def test_a_damaged_stream_is_refused(tmp_path):
    write_streams(tmp_path, [vismin_row(0)], files=1)
    file = next(tmp_path.glob("*.arrow"))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert "not a readable Arrow stream" in refusal(tmp_path)
    file.write_bytes(b"\xff" * 100)
    assert "not a readable Arrow stream" in refusal(tmp_path)
    file.write_bytes(whole.replace(b"category", b"categor\xff"))
    assert "not a readable Arrow stream" in refusal(tmp_path)
    file.write_bytes(whole.replace(b"bytes", b"byte\xff"))  # of the column of images
    image = read_questions(tmp_path)[0].image
    with pytest.raises(UserError, match="row 1: 'image_0' cannot be read"):
        image.read()


def test_vismin_options_that_do_not_fit_are_an_error_or_no_option(tmp_path):
    write_parquet(tmp_path / "a.parquet", [vismin_row(0) | {"text_question_1": "Is it?"}])
    assert "text_question_1 should be" in refusal(tmp_path)
    write_parquet(tmp_path / "a.parquet", [vismin_row(0) | {"text_0": "a cow"}])
    assert read_questions(tmp_path)[0].questions[0].answer == NO_OPTION


def test_hallusion_bench_groups_the_questions_of_a_figure(tmp_path):
    records = [hallusion_record(figure, q) for figure in (0, 1) for q in range(3)]
    (tmp_path / "HallusionBench.json").write_text(json.dumps(records))
    assert "[3]: there is no image './VS/chart/3_1.png'" in refusal(tmp_path)
    put_image(tmp_path / "hallusion_bench" / "VS" / "chart" / "3_1.png", 5)
    without, shown = read_questions(tmp_path)
    assert without.image is None
    assert shown.image.read() == encode_image(5)
    assert (without.key, shown.group) == ("vs-chart-3-0", "VS-chart-3")
    assert [question.right for question in shown.questions] == ["no", "yes", "no"]
    assert shown.questions[1].extra["question_id"] == "1"
    assert (shown.category, shown.questions[0].extra["subcategory"]) == ("VS", "chart")
    rows = [
        {**record, "image": {"bytes": encode_image(6), "path": ""} if record["filename"] else None}
        for record in records
    ]
    write_parquet(tmp_path / "hub" / "a.parquet", rows)
    hub = read_questions(tmp_path / "hub")
    assert hub[0].image is None
    assert hub[1].image.read() == encode_image(6)
    assert hub[1].questions == shown.questions


def test_hallusion_bench_names_invalid_answers_and_duplicates(tmp_path):
    file = tmp_path / "HallusionBench.json"
    file.write_text(json.dumps([hallusion_record(0, 0, gt_answer="2")]))
    assert "gt_answer='2' is invalid" in refusal(file)
    file.write_text(json.dumps([hallusion_record(0, 0), hallusion_record(0, 0)]))
    assert "[1]: image 'vs-chart-3-0' has duplicated question ids" in refusal(file)


def test_mmvp_is_pairs_of_images_by_their_number(tmp_path):
    names = ("Index", "Question", "Options", "Correct Answer")
    rows = [
        ("1", "Are the wings open?", "(a) Open (b) Not open", "(a)"),
        ("2", "Are the wings open?", "(a) Open (b) Not open", "(b)"),
        ("3", "Where is it?", "(a) Left (in front) (b) Right", "(c)"),
    ]
    write_csv(tmp_path / "Questions.csv", [dict(zip(names, row, strict=True)) for row in rows])
    for number in (1, 2, 3):
        put_image(tmp_path / "MMVP Images" / f"{number}.jpg", number)
    entries = read_questions(tmp_path)
    assert [entry.group for entry in entries] == ["0", "0", "1"]
    assert [entry.questions[0].right for entry in entries] == ["Open", "Not open", None]
    assert entries[2].questions[0].options == ("Left (in front)", "Right")
    assert entries[2].questions[0].answer not in range(2)
    assert [entry.questions[0].extra["image"] for entry in entries] == [0, 1, 0]
    assert entries[1].image.read() == encode_image(2)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({1: "(a)", 2: "(B)"}, ""),
        ({1: "Open", 2: "shut."}, ""),
        ({1: "(a)", 2: "2"}, "1 of 2 answers are not among the options, such as '2'"),
        ({1: "(a)", 2: "(b)", 3: "(a)"}, "Index 3 without the other row of the pair"),
        ({2: "(a)", 3: "(b)", 4: "(b)"}, "Index 2 without the other row of the pair"),
    ],
)
def test_mmvp_says_wrong_answers_and_pairs_that_are_not_whole(tmp_path, capsys, answers, said):
    photos, options = tmp_path / "MMVP Images", "(a) Open (b) Shut"
    for number in answers:
        put_image(photos / f"{number}.jpg", number)
    rows = [
        {"Index": n, "Question": "Is it?", "Options": options, "Correct Answer": answer}
        for n, answer in answers.items()
    ]
    entries = read_questions(write_csv(tmp_path / "Questions.csv", rows))
    assert said in (warned := capsys.readouterr().err)
    assert said or not warned
    if not said:
        assert [entry.questions[0].right for entry in entries] == ["Open", "Shut"]


@pytest.mark.parametrize(("rows", "said"), [([0, 1], False), ([0, 0], True)])
def test_one_answer_for_both_images_of_a_pair_is_said(tmp_path, capsys, rows, said):
    row = naturalbench_row(0)
    for number, answer in enumerate(rows):
        row[f"Image_{number}_Question_0"] = ("Yes", "No")[answer]
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", [row])
    read_questions(tmp_path)
    warned = capsys.readouterr().err
    assert ("1 of 2 questions have one answer for both images of a pair" in warned) == said


def test_mmvp_says_pairs_of_two_questions(tmp_path, capsys):
    for number in (1, 2):
        put_image(tmp_path / "MMVP Images" / f"{number}.jpg", number)
    rows = [
        {"Index": n, "Question": text, "Options": "(a) Yes (b) No", "Correct Answer": "(a)"}
        for n, text in ((1, "Is it?"), (2, "Was it?"))
    ]
    read_questions(write_csv(tmp_path / "Questions.csv", rows))
    assert "Index 1 ask two different questions" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answers", "right"),
    [(("b", "(A)"), ("two", "one")), (("one", "TWO"), ("one", "two")), (("2", "E"), (None, None))],
)
def test_c_vqa_answers_may_be_letters_or_texts(tmp_path, capsys, answers, right):
    put_image(tmp_path / "images" / "a.png")
    ask = "How many? Select the correct answer:A:one B:two"
    row = {"img_path": "a.png", "query": ask, "answer": answers[0], "new query": ask,
           "new answer": answers[1], "type": "num"}  # fmt: skip
    (entry,) = read_questions(write_csv(tmp_path / "q.csv", [row]))
    assert tuple(question.right for question in entry.questions) == right
    assert ("2 of 2 answers are not among the options" in capsys.readouterr().err) == (
        None in right
    )


def test_columns_that_are_missing_are_named_with_the_form(tmp_path):
    row = {"Index": "1", "Question": "Who?", "Options": "(a) x (b) y"}
    message = refusal(write_csv(tmp_path / "Questions.csv", [row]))
    assert "looks like MMVP and lacks Correct Answer" in message
    message = refusal(write_csv(tmp_path / "other.csv", [{"caption": "a dog"}]))
    assert all(form.name in message for form in FORMS)
    assert "there is no file or folder" in refusal(tmp_path / "nowhere")
    (tmp_path / "notes.md").write_text("hello")
    assert "not a readable question set" in refusal(tmp_path / "notes.md")


def test_a_folder_of_several_sets_asks_for_one(tmp_path):
    file = write_own(tmp_path, [own_record(0)])
    (tmp_path / "more.jsonl").write_bytes(file.read_bytes())
    write_csv(tmp_path / "notes.csv", [{"caption": "no questions"}])
    message = refusal(tmp_path)
    assert "several question sets" in message
    assert "more.jsonl" in message
    assert "notes.csv" not in message


def test_records_refuse_what_nothing_could_be_asked_of():
    question = SourceQuestion("q0", "basic", "Who?", ("a", "b"), 5)
    assert question.right is None
    image = QuestionImage("a", "a", None, "", (question,))
    assert image.of_kind("basic") == (question,)
    assert image.of_kind("other") == ()
    with pytest.raises(UserError, match="duplicated question ids"):
        replace(image, questions=(question, question))
    with pytest.raises(UserError, match="has no question"):
        replace(image, questions=())
    with pytest.raises(UserError, match="key 'A b' is invalid"):
        replace(image, key="A b")
    for changes in ({"text": " "}, {"options": ("a", "")}, {"id": "Q"}):
        with pytest.raises(UserError, match=r"should be a text|is invalid"):
            replace(question, **changes)  # type: ignore[arg-type]


def asked(folder: Path, count: int = 3) -> list[QuestionImage]:
    return read_questions(write_own(folder, [own_record(i) for i in range(count)]))


def without_image(entry: QuestionImage) -> QuestionImage:
    return replace(entry, image=None)


def files(folder: Path) -> dict[str, bytes]:
    written = [file for file in folder.rglob("*") if file.is_file() and file.name != RECORD]
    return {str(file.relative_to(folder)): file.read_bytes() for file in written}


def test_what_is_written_is_read_back_and_has_the_same_bytes(tmp_path):
    first = asked(tmp_path / "in")
    odd = replace(first[1].questions[1], answer=-1, extra={"answer": "a cow", "source": "llm"})
    questions = (first[1].questions[0], odd, *first[1].questions[2:])
    first[1] = replace(first[1], questions=questions)
    assert write_questions(first, tmp_path / "out") == 3
    again = read_questions(tmp_path / "out")
    assert [without_image(entry) for entry in again] == [without_image(entry) for entry in first]
    for i, entry in enumerate(again):
        assert entry.image.read() == encode_image(i)
    write_questions(again, tmp_path / "once_more")
    assert files(tmp_path / "once_more") == files(tmp_path / "out")


def test_an_image_of_several_entries_is_written_once(tmp_path):
    first = asked(tmp_path / "in", 1)[0]
    write_questions([first, replace(first, key="other")], tmp_path / "out")
    assert len(files(tmp_path / "out")) == 2
    assert len(read_questions(tmp_path / "out")) == 2


def test_other_questions_and_full_folders_are_refused(tmp_path):
    (entry,) = asked(tmp_path / "in", 1)
    plain = replace(entry, questions=tuple(replace(q, kind="question") for q in entry.questions))
    for wrong, said in ((plain, "only one basic question"), (without_image(entry), "has no image")):
        with pytest.raises(UserError, match=said):
            write_questions([wrong], tmp_path / said.split()[0])
    with pytest.raises(UserError, match="no question to write"):
        write_questions([], tmp_path / "empty")
    with pytest.raises(UserError, match="name a new or an empty folder"):
        write_questions([entry], tmp_path / "in")


def test_sets_whose_members_are_questions_are_exported(tmp_path):
    (entry,) = asked(tmp_path / "in", 1)
    about = {CATEGORY: entry.category, "coco_id": 5}
    members = tuple(
        Member(q.text, "0", entry.key, extra={**about, QUESTION: details_of(q)})
        for q in entry.questions
    )
    made = CounterfactualSet(entry.key, entry.group, members, {"0": encode_image(4)})
    assert export_questions([made], tmp_path / "out") == 1
    (back,) = read_questions(tmp_path / "out")
    assert back.questions == entry.questions
    assert back.extra == {"coco_id": 5}
    assert (back.category, back.group) == (entry.category, entry.group)
    assert back.image.read() == encode_image(4)
    captions = replace(made, members=tuple(replace(m, extra={}) for m in members))
    with pytest.raises(UserError, match="is not a question with its options"):
        export_questions([captions], tmp_path / "other")
    two = replace(
        made,
        images={"0": encode_image(4), "1": encode_image(5)},
        members=(members[0], replace(members[1], image_name="1")),
    )
    with pytest.raises(UserError, match="not questions about one image"):
        export_questions([two], tmp_path / "third")


def test_an_example_carries_the_questions_as_json(tmp_path):
    (entry,) = asked(tmp_path, 1)
    example = example_of(entry)
    assert json.loads(json.dumps(dict(example.extra))) == example.extra
    assert questions_of(example) == entry.questions
    assert (example.texts, example.group) == ((entry.questions[0].text,), entry.group)
    assert example.extra["coco_id"] == 100
    with pytest.raises(UserError, match="has no questions"):
        questions_of(replace(example, extra={}))
    with pytest.raises(UserError, match="1 basic and 0 counterfactual"):
        example_of(replace(entry, questions=entry.questions[:1]))
    with pytest.raises(UserError, match="not a question with its options"):
        question_of("Who?", None, "here")


def test_vlms_are_biased_has_the_right_and_the_memorised_answer(tmp_path):
    folder = vlms_are_biased(tmp_path / "vlms_are_biased")
    assert "several splits" in refusal(folder)
    entries = read_questions(f"{folder}:main")
    assert len(entries) == len({entry.key for entry in entries}) == 24
    assert [entry.group for entry in entries[::6]] == [
        "Adidas_1_notitle", "Audi_1_notitle", "dog_1_notitle", "Ebbinghaus_001_notitle",
    ]  # fmt: skip
    assert len({entry.group for entry in entries}) == 4  # of three sizes and two questions each
    for number, entry in enumerate(entries):
        assert entry.image.read() == encode_image(number % 6 // 2)
        (question,) = entry.questions
        options, right, memorised = (
            # All numbers that are right or memorised in the topic, in their order.
            (("{3}", "{4}", "{5}"), "{4}", "{3}"),
            (("{3}", "{4}", "{5}"), "{5}", "{4}"),
            (("{4}", "{5}"), "{5}", "{4}"),
            (("{Yes}", "{No}"), "{No}", "{Yes}"),
        )[number // 6]
        assert (question.options, question.right) == (options, right)
        assert question.extra["expected_bias"] == memorised
        assert question.text.endswith("Answer in curly brackets, e.g., " + (
            "{Yes} or {No}." if number >= 18 else "{9}."
        ))  # fmt: skip
    assert [entry.category for entry in entries[::6]] == [
        "Logos", "Logos", "Animals", "Optical Illusion",
    ]  # fmt: skip
    assert entries[3].questions[0].extra.items() >= {
        "type_of_question": "Q2", "pixel": 768, "with_title": False, "sub_topic": "some Logos",
    }.items()  # fmt: skip
    nike, audi, cat = read_questions(f"{folder}:original")
    assert "expected_bias" not in nike.questions[0].extra
    assert nike.questions[0].options == audi.questions[0].options == ("{Nike}", "{Audi}")
    assert (nike.questions[0].right, audi.questions[0].right) == ("{Nike}", "{Audi}")
    assert cat.questions[0].unscorable == "one_option"


def test_rows_of_vlms_are_biased_that_are_odd(tmp_path):
    plain = {"prompt": "How many?", "ID": "Same"}
    rows = [
        biased_row("a", "Logos", 4, 3, **plain),  # numbers, and an ID twice
        biased_row("b", "Logos", 5, "many", **plain),
    ]
    file = tmp_path / "a.jsonl"
    for number, row in enumerate(rows):
        row.pop("image")
        put_image(tmp_path / row["image_path"], number)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = read_questions(file)
    assert first.key != second.key
    assert first.questions[0].options == second.questions[0].options == ("3", "4", "5")
    assert second.questions[0].extra["expected_bias"] == "many"  # dry_run=true names it
    assert second.image.read() == encode_image(1)
    file.write_text(json.dumps(rows[0] | {"ground_truth": None}) + "\n")
    assert "'ground_truth' should be a text" in refusal(file)
