"""Tiny question sets as files, in each form that is read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def encode_image(tone: int) -> bytes:
    """Return a PNG of one grey tone."""
    out = io.BytesIO()
    Image.new("RGB", (6, 4), (tone, tone, tone)).save(out, "PNG")
    return out.getvalue()


def own_record(number: int, **changes: Any) -> dict[str, Any]:
    """Return a line of our own form."""
    counterfactuals = [
        {
            "q": f"If {i} more dogs came, how many dogs would there be?",
            "presupposition": f"{i} more dogs came",
            "options": ["9", f"{i + 10}"],
            "answer": 1 - (number + i) % 2,
            "source": "human" if i == 1 else "llm",
            "verified": True,
        }
        for i in range(1, 5)
    ]
    basic = {"q": "How many dogs are there?", "options": ["2", "3"], "answer": number % 2}
    record = {
        "id": str(number), "image": f"{number}.png", "coco_id": 100 + number, "category": "count",
        "basic": basic, "counterfactuals": counterfactuals,
    }  # fmt: skip
    return record | changes


def write_own(folder: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    """Write our own form with an image for every record."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, record in enumerate(records):
        (folder / str(record["image"])).write_bytes(encode_image(number))
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def write_csv(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write a csv."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as handle:
        table = csv.DictWriter(handle, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return file


def put_image(file: Path, tone: int = 0) -> None:
    """Write an image file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(encode_image(tone))


def embedded(tone: int) -> dict[str, Any]:
    """Return an image as a column of the Hub holds it."""
    return {"bytes": encode_image(tone), "path": f"{tone}.png"}


def write_parquet(file: Path, rows: Sequence[Mapping[str, Any]], per_group: int = 2) -> Path:
    """Write parquet of several row groups."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), file, row_group_size=per_group)
    return file


def write_streams(folder: Path, rows: Sequence[Mapping[str, Any]], files: int = 2) -> None:
    """Write Arrow streams as ``datasets.save_to_disk`` does."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        table = pa.Table.from_pylist(list(rows[number::files]))
        name = folder / f"data-{number:05d}-of-{files:05d}.arrow"
        with pa.OSFile(str(name), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table, max_chunksize=1)


def naturalbench_row(index: int, kind: str = "yes_no") -> dict[str, Any]:
    """Return a group of NaturalBench."""
    ending = "" if kind == "yes_no" else " Option: A:sitting; B:lying;"
    first, second = ("Yes", "No") if kind == "yes_no" else ("A", "B")
    return {
        "Index": index, "Source": "Flickr", "Question_Type": kind,
        "Question_0": f"Is the dog {index} up?{ending}",
        "Question_1": f"Is it {index} down?{ending}",
        "Image_0": embedded(2 * index), "Image_1": embedded(2 * index + 1),
        "Image_0_Question_0": first, "Image_1_Question_0": second,
        "Image_0_Question_1": second, "Image_1_Question_1": first,
    }  # fmt: skip


def vismin_row(number: int) -> dict[str, Any]:
    """Return a row of VisMin."""
    options = "(A) A dog, or (B) A cat"
    asked = f"Does this image best match: {options}? Choices: A, B. Note, you must choose one."
    return {
        "id": str(number), "category": "object", "text_0": "A cat.", "text_1": "A dog.",
        "image_0": embedded(10 + 2 * number), "image_1": embedded(11 + 2 * number),
        "text_question_0": f"<image_0> {asked}", "text_question_1": f"<image_1> {asked}",
        "image_question_0": "Which image?", "image_question_1": "Which image?",
    }  # fmt: skip


def hallusion_record(figure: int, question: int, **changes: Any) -> dict[str, Any]:
    """Return a question of HallusionBench; figure 0 has no image."""
    record = {
        "category": "VS", "subcategory": "chart", "visual_input": str(figure), "set_id": "3",
        "figure_id": str(figure), "sample_note": "import", "question_id": str(question),
        "question": f"Is China number {question}?", "gt_answer_details": "so",
        "gt_answer": str(question % 2),
        "filename": f"./VS/chart/3_{figure}.png" if figure else None,
    }  # fmt: skip
    return record | changes


def biased_row(
    case: str, topic: str, right: object, memorised: object, number: int = 0, **changes: Any
) -> dict[str, Any]:
    """Return a question about a counterfactual image of VLMs Are Biased.

    Args:
        number: the number of the row among the six of its case.
    """
    question, pixel = f"Q{1 + number % 2}", (384, 768, 1152)[number // 2]
    form = "{Yes} or {No}" if right in ("Yes", "No") else "{9}"
    row = {
        "image": embedded(number // 2), "ID": f"{case}_{question}_notitle_px{pixel}",
        "image_path": f"images/{case}_{pixel}.png", "topic": topic, "sub_topic": f"some {topic}",
        "prompt": f"{question}: what of {case}? Answer in curly brackets, e.g., {form}.",
        "ground_truth": right, "expected_bias": memorised, "with_title": False,
        "type_of_question": question, "pixel": pixel, "metadata": json.dumps({"case": case}),
    }  # fmt: skip
    return row | changes


def vlms_are_biased(folder: Path) -> Path:
    """Lay out the split of counterfactual images and that of originals, a few cases each."""
    cases = [
        ("Adidas_1", "Logos", "4", "3"), ("Audi_1", "Logos", "5", "4"),
        ("dog_1", "Animals", "5", "4"), ("Ebbinghaus_001", "Optical Illusion", "No", "Yes"),
    ]  # fmt: skip
    rows = [biased_row(*case, number) for case in cases for number in range(6)]
    for number, file in enumerate((rows[:10], rows[10:])):
        write_parquet(folder / "data" / f"main-{number:05d}-of-00002.parquet", file)
    originals = [
        biased_row("Nike", "Logos", "{Nike}", None), biased_row("Audi", "Logos", "Audi", None),
        biased_row("cat", "Animals", "4", None),
    ]  # fmt: skip
    write_parquet(folder / "data" / "original-00000-of-00001.parquet", originals)
    return folder
