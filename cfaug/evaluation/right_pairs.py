"""Files that say which captions are right about which images: ``benchmark.also_right=FILE``.

Read as released: ECCV Caption's JSON (github.com/naver-ai/eccv-caption, ``eccv_caption/data``), and
the rated pairs of Crisscrossed Captions (CxC, ``sits_test.csv``), or a list of your own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np

from cfaug.core.errors import UserError, name_some, say_once
from cfaug.core.safety.json_text import json_file
from cfaug.core.text import normalise_caption
from cfaug.data.index import Index
from cfaug.data.sources.coco import Coco, Karpathy, coco_photo
from cfaug.data.sources.lists import list_records
from cfaug.data.sources.row import ErrorCollector
from cfaug.stats.right_answers import RightAnswers

COLUMNS = ("caption", "image", "agg_score", "sampling_method")
"""The columns of CxC's ratings of a caption with an image; the last two may be absent."""
HIGHEST, RATED_RIGHT = 5.0, 3.0
"""The highest rating, and that from which CxC's authors count a pair as right (section 3)."""
CAPTION_ID = "caption_id"
"""The column in which a list of your own has the ids of its captions."""
ENDS = {"image_to_text": "image_to_caption", "text_to_image": "caption_to_image"}
"""The ends of the names of ECCV Caption's two files."""
SENTENCE = re.compile(r"(?:\w+:sentid:)?(\d+)")
"""A caption's id, alone or as CxC writes it."""


class NamedPair(NamedTuple):
    """A caption and an image as a file names them, and whether the one is right about the other."""

    caption: str
    image: str
    is_right: bool


@dataclass(frozen=True)
class RightPairs:
    """The content of such a file.

    Attributes:
        pairs: the pairs of both directions, by ``image_to_text`` and ``text_to_image``.
        complete: whether the pairs are all that is right, and nothing but their queries is asked;
            otherwise they add to a source's own, or take away from them.
    """

    file: Path
    pairs: Mapping[str, Sequence[NamedPair]]
    complete: bool


def read_right_pairs(file: str | Path) -> RightPairs:
    """Read a file of right pairs; of ECCV Caption's two, either stands for both.

    Raises:
        UserError: if it has another form, is damaged, or one of two files is missing.
    """
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise UserError(f"benchmark.also_right={file}: there is no such file")
    content = json_file(path) if path.suffix == ".json" else None
    if not isinstance(content, dict):
        return RightPairs(path, dict.fromkeys(ENDS, _read_rated(path)), complete=False)
    end = next((end for end in ENDS.values() if path.stem.endswith(end)), None)
    if end is None:
        raise UserError(
            f"{path} holds an object, whose keys may be images or captions: name it "
            f"{' or '.join(f'..._{end}.json' for end in ENDS.values())}, as ECCV Caption does"
        )
    pairs = {}
    for way, end_of_way in ENDS.items():
        listed = path.with_name(f"{path.stem.removesuffix(end)}{end_of_way}.json")
        if not listed.is_file():
            raise UserError(
                f"{path} says what is right in one direction, and {listed.name} in the other: put "
                "it beside the first"
            )
        pairs[way] = [
            NamedPair(query, answer, True)
            if way == "text_to_image"
            else NamedPair(answer, query, True)
            for query, answers in _read_lists(listed).items()
            for answer in answers
        ]
    return RightPairs(path, pairs, complete=True)


def _read_lists(file: Path) -> dict[str, list[str]]:
    content = json_file(file)
    if not isinstance(content, dict) or not content:
        raise UserError(f"{file} should be an object {{id: [ids that are right]}}")
    for query, answers in content.items():
        listed = answers if isinstance(answers, list) else []
        if not listed or not all(type(answer) in (int, str) for answer in listed):
            raise UserError(
                f"{file}, {query!r}: there should be a list of ids, not {answers!r:.80}"
            )
    return {query: list(map(str, answers)) for query, answers in content.items()}


def _read_rated(file: Path) -> list[NamedPair]:
    errors = ErrorCollector()
    verdicts: dict[tuple[str, str], bool] = {}
    for where, record in list_records(file):
        with errors.collect():
            caption, image = (str(record.get(name) or "").strip() for name in COLUMNS[:2])
            if not caption or not image or any(name not in COLUMNS for name in record):
                raise UserError(
                    f"{where}: a right pair has the columns caption and image (and agg_score of "
                    f"0 to 5, if pairs were rated), not {', '.join(map(repr, record))}"
                )
            rating = record.get("agg_score", HIGHEST)
            try:
                number = float(rating)
            except (TypeError, ValueError):
                number = -1.0
            if not 0 <= number <= HIGHEST:
                raise UserError(f"{where}: agg_score={rating!r} should be a number from 0 to 5")
            is_right = number >= RATED_RIGHT
            if verdicts.setdefault((caption, image), is_right) != is_right:
                raise UserError(f"{where}: elsewhere the file says the opposite of this pair")
    errors.report()
    if not verdicts:
        raise UserError(f"{file} names no pair")
    return [NamedPair(*pair, is_right) for pair, is_right in verdicts.items()]


def match_right_pairs(
    labels: RightPairs, index: Index, texts: np.ndarray, photos: np.ndarray, of_text: np.ndarray
) -> dict[str, RightAnswers]:
    """Return what is right in both directions, ``{"image_to_text": ..., "text_to_image": ...}``.

    What the file names and the source has not is left out, counted and said.

    Args:
        texts: the rows of the captions, integers (texts,).
        photos: a row of each image, integers (images,).
        of_text: index of each caption's image, integers (texts,).

    Raises:
        UserError: if nothing matches, or a name may mean several images.
    """
    find_texts = _text_finder(index, texts, labels.file)
    find_photo = _photo_finder(index, photos, labels.file)
    named, absent = set[NamedPair](), dict[NamedPair, str]()
    right = {}
    for way, pairs in labels.pairs.items():
        places = set() if labels.complete else set(enumerate(of_text.tolist()))
        for pair in pairs:
            named.add(pair)
            rows, photo = find_texts(pair.caption), find_photo(pair.image)
            if not rows or photo is None:
                absent[pair] = f"image {pair.image}" if rows else f"caption {pair.caption}"
                continue
            change = places.update if pair.is_right else places.difference_update
            change((row, photo) for row in rows)
        answers: dict[int, list[int]] = defaultdict(list)
        for text, photo in sorted(places):
            query, answer = (photo, text) if way == "image_to_text" else (text, photo)
            answers[query].append(answer)
        queries = sorted(answers)
        right[way] = RightAnswers(
            np.array(queries, np.int64),
            [np.array(answers[query]) for query in queries],
            len(texts) if way == "image_to_text" else len(photos),
        )
    culprits = name_some(dict.fromkeys(absent.values()), 3)
    if len(absent) == len(named):
        raise UserError(
            f"{labels.file}: none of its {len(named):,} pairs is of {index.source}, which lacks "
            f"{culprits}: is it the file of another split? A caption is named by its text or "
            "COCO's id, an image by COCO's id or its file"
        )
    if absent:
        say_once(
            f"{labels.file}: {len(named) - len(absent):,} of {len(named):,} pairs are of "
            f"{index.source}; the others are left out, which name {culprits}"
        )
    for way, answers_of_way in right.items():
        if not len(answers_of_way.queries):
            raise UserError(
                f"{labels.file} leaves nothing that is right from {way.replace('_', ' ')} in "
                f"{index.source}"
            )
    return right


def _text_finder(index: Index, texts: np.ndarray, file: Path) -> Callable[[str], list[int]]:
    """Return a function from a caption's name to its places among ``texts``."""
    by_id = _caption_ids(index, texts)
    by_words: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(texts.tolist()):
        by_words[normalise_caption(index.text(row))].append(place)

    def find(name: str) -> list[int]:
        number = SENTENCE.fullmatch(name)
        if number is None:
            return by_words.get(normalise_caption(name), [])
        if by_id is None:
            raise UserError(
                f"{file} names captions by COCO's ids, such as {name}, and {index.source} has "
                "none: name one of Karpathy's splits (FOLDER:test), a folder of COCO, or give your "
                f"list a column {CAPTION_ID}"
            )
        return [by_id[number[1]]] if number[1] in by_id else []

    return find


def _caption_ids(index: Index, texts: np.ndarray) -> dict[str, int] | None:
    """Return the place of each id of a caption; ``None`` for a source without ids."""
    readers = {reader.kind: reader for reader in (Coco(), Karpathy())}
    if index.kind in readers:
        ids = readers[index.kind].caption_ids(Path(index.source).expanduser())
        names = [ids.get(key) for key in index.keys(texts)]
    elif CAPTION_ID in index.extra_names:
        given = index.extra_values(CAPTION_ID, texts)
        names = [None if value is None else str(value) for value in given]
    else:
        return None
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        if name is not None and places.setdefault(name, place) != place:
            raise UserError(f"{index.source}: two captions have the id {name}")
    return places


def _photo_finder(index: Index, photos: np.ndarray, file: Path) -> Callable[[str], int | None]:
    """Return a function from an image's name to its place among ``photos``."""
    places: dict[str, set[int]] = defaultdict(set)
    for place, row in enumerate(photos.tolist()):
        name = PurePath(index.file_name(row)).name
        for alias in {name, coco_photo(name), index.group_name(row), index.key(row)} - {""}:
            places[alias].add(place)

    def find(name: str) -> int | None:
        of_name = places.get(name) or places.get(coco_photo(name)) or set()
        if len(of_name) > 1:
            raise UserError(
                f"{file}: {name!r} may mean {len(of_name)} images of {index.source}: name each by "
                f"its key, such as {index.key(int(photos[min(of_name)]))}"
            )
        return next(iter(of_name), None)

    return find
