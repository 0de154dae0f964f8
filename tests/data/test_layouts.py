"""Own data in the layouts that people have: read as what they are, or refused by a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.data.index import Index, open_index
from tests.data.hostile import assert_refused
from tests.data.layouts import (
    CAPTIONED,
    TEXTS,
    captions_csv,
    cells,
    edited,
    images,
    jsonl,
    parquet,
    sidecars,
    sides,
    table,
)  # fmt: skip
from tests.data.making import noise_image

Sets = list[list[tuple[str, bytes]]]
NAMES = list(TEXTS)


def read(index: Index) -> Sets:
    """Return (caption, image) of every member of every set."""
    sets: dict[int, list[tuple[str, bytes]]] = {}
    for row, number in enumerate(index.sets.tolist()):
        sets.setdefault(number, []).append((index.text(row), index.read_image(row)))
    return list(sets.values())


def png(number: int) -> bytes:
    return noise_image(number, kind="PNG")


def jpg(number: int) -> bytes:
    return noise_image(number, kind="JPEG")


SINGLES: Sets = [[(text, png(i))] for i, text in enumerate(TEXTS.values())]
"""Three photos with a caption each."""

PAIRS: Sets = [
    [(text, png(i)), (edited(text), jpg(10 + i))] for i, text in enumerate(TEXTS.values())
]
"""Three photos, each with its counterfactual, a JPEG."""


def beside(photos: str, file: str, columns: str, mark: str = ",") -> Callable[[Path], None]:
    """Lay out a list beside a folder of photos, or among them."""

    def lay_out(x: Path) -> None:
        images(x / photos)
        table(x / file, columns.split(), CAPTIONED, mark)

    return lay_out


def coco_like(x: Path) -> None:
    images(x / "images")
    about = {
        "images": [{"id": i, "file_name": f"{n}.png"} for i, n in enumerate(NAMES)],
        "annotations": [{"image_id": i, "caption": t} for i, t in enumerate(TEXTS.values())],
    }
    (x / "annotations.json").write_text(json.dumps(about))


def json_list(x: Path) -> None:
    images(x / "photos")
    lines = [{"image": f"{n}.png", "captions": [t]} for n, t in TEXTS.items()]
    (x / "captions.json").write_text(json.dumps(lines))


def json_names(x: Path) -> None:
    images(x / "photos")
    (x / "captions.json").write_text(json.dumps({f"{n}.png": [t] for n, t in TEXTS.items()}))


def llava(x: Path) -> None:
    images(x / "images")
    lines = [
        {"id": n, "image": f"{n}.png", "conversations": [
            {"from": "human", "value": "<image>\nDescribe the image."}, {"from": "gpt", "value": t},
        ]} for n, t in TEXTS.items()
    ]  # fmt: skip
    (x / "blip_laion_3.json").write_text(json.dumps(lines))


def flickr_results(x: Path) -> None:
    images(x / "flickr30k_images")
    lines = [f"{n}.png| 0| {t} " for n, t in TEXTS.items()]
    lines[1] = lines[1].replace("0|", "0 ")  # as one row of the release is
    text = "\n".join(["image_name| comment_number| comment", *lines])
    (x / "results.csv").write_text(text + "\n")


def flickr_tokens(x: Path, file: str = "results_20130124.token") -> None:
    images(x / "flickr30k-images")
    (x / file).write_text("".join(f"{n}.png#0\t{t}\n" for n, t in TEXTS.items()))


def five_columns(x: Path) -> None:
    images(x)
    rows = [(f"{n}.png", t, f"{t} again") for n, t in TEXTS.items()]
    table(x / "captions.csv", ["image", "caption_1", "caption_2"], rows)


hub_metadata = beside("train", "train/metadata.csv", "file_name text")


def hub_metadata_parquet(x: Path) -> None:
    images(x)
    files = [f"{n}.png" for n in NAMES]
    parquet(x / "metadata.parquet", {"file_name": files, "text": list(TEXTS.values())})


def hub_parquet(x: Path) -> None:
    columns = {"image": cells(), "text": list(TEXTS.values())}
    for shard, part in enumerate((slice(0, 2), slice(2, 3))):
        file = x / "data" / f"train-{shard:05d}-of-00002.parquet"
        parquet(file, {name: column[part] for name, column in columns.items()})
    parquet(x / "data" / "test-00000-of-00001.parquet", {"image": cells(5), "text": list("xyz")})


def hub_parquet_lists(x: Path) -> None:
    texts = [[t, f"{t} again"] for t in TEXTS.values()]
    parquet(x / "all.parquet", {"image": cells(), "caption": texts})


def hub_parquet_rows(x: Path) -> None:
    twice = [cell for cell in cells() for _ in range(2)]  # a row for each caption
    texts = [caption for t in TEXTS.values() for caption in (t, f"{t} again")]
    parquet(x / "all.parquet", {"image": twice, "caption": texts, "width": [8] * 6})


def sidecar_pairs(x: Path) -> None:
    sides(x, "original", "counterfactual")
    sidecars(x / "original", TEXTS)
    sidecars(x / "counterfactual", {n: edited(t) for n, t in TEXTS.items()})


def folders_and_list(x: Path) -> None:
    sides(x, "real", "cf")
    rows = [(f"{n}.png", t, edited(t)) for n, t in TEXTS.items()]
    table(x / "captions.csv", ["image", "caption", "cf_caption"], rows)


def folders_and_paths(x: Path) -> None:
    sides(x, "source", "edited")
    rows = [(f"source/{n}.png", t) for n, t in TEXTS.items()]
    rows += [(f"edited/{n}.jpg", edited(t)) for n, t in TEXTS.items()]
    table(x / "captions.csv", ["image", "caption"], rows)


def folders_and_lists(x: Path) -> None:
    sides(x, "before", "after")
    for side, change, ending in (("before", str, "png"), ("after", edited, "jpg")):
        rows = [(f"{n}.{ending}", change(t)) for n, t in TEXTS.items()]
        table(x / side / "captions.csv", ["image", "caption"], rows)


def pairs_csv(x: Path, names: str = "image,caption,cf_image,cf_caption") -> None:
    sides(x, "a", "b")
    rows = [(f"a/{n}.png", t, f"b/{n}.jpg", edited(t)) for n, t in TEXTS.items()]
    table(x / "pairs.csv", names.split(","), rows)


def pairs_jsonl(x: Path) -> None:
    sides(x, "a", "b")
    jsonl(x / "pairs.jsonl", [
        {"image_0": f"a/{n}.png", "image_1": f"b/{n}.jpg", "caption_0": t, "caption_1": edited(t)}
        for n, t in TEXTS.items()
    ])  # fmt: skip


def pairs_listed(x: Path) -> None:
    sides(x, "a", "b")
    jsonl(x / "sets.jsonl", [
        {"image": f"a/{n}.png", "caption": t,
         "counterfactuals": [{"image": f"b/{n}.jpg", "caption": edited(t)}]}
        for n, t in TEXTS.items()
    ])  # fmt: skip


def pairs_parquet(x: Path) -> None:
    parquet(x / "pairs.parquet", {
        "original_image": cells(), "original_prompt": list(TEXTS.values()),
        "edited_image": [{"bytes": jpg(10 + i), "path": None} for i in range(3)],
        "edited_prompt": [edited(t) for t in TEXTS.values()],
        "edit_prompt": ["make it night"] * 3,
    })  # fmt: skip


def numbered_parquet(x: Path) -> None:
    parquet(x / "pairs.parquet", {
        "id": NAMES, "image_0": cells(), "caption_0": list(TEXTS.values()),
        "image_1": [{"bytes": jpg(10 + i), "path": None} for i in range(3)],
        "caption_1": [edited(t) for t in TEXTS.values()],
    })  # fmt: skip


TWO_CAPTIONS: Sets = [[(t, png(i)), (f"{t} again", png(i))] for i, t in enumerate(TEXTS.values())]

LAYOUTS: list[tuple[Callable[[Path], None], str, Sets, str]] = [
    (captions_csv, "", SINGLES, "caption_list"),
    (beside("", "train.csv", "filepath title", "\t"), "", SINGLES, "caption_list"),
    (beside("", "captions.csv", "img sentence", ";"), "", SINGLES, "caption_list"),
    (beside("Images", "captions.txt", "image caption"), "", SINGLES, "caption_list"),
    (coco_like, "", SINGLES, "caption_list"),
    (json_list, "", SINGLES, "caption_list"),
    (json_names, "", SINGLES, "caption_list"),
    (llava, "", SINGLES, "caption_list"),
    (flickr_results, "", SINGLES, "caption_list"),
    (flickr_tokens, "", SINGLES, "caption_list"),
    (lambda x: flickr_tokens(x, "Flickr8k.token.txt"), "", SINGLES, "caption_list"),
    (lambda x: (images(x), sidecars(x, TEXTS)), "", SINGLES, "sidecar_text"),
    (five_columns, "", TWO_CAPTIONS, "caption_list"),
    (hub_metadata, "/train", SINGLES, "caption_list"),
    (hub_metadata, ":train", SINGLES, "caption_list"),
    (hub_metadata_parquet, "", SINGLES, "caption_list"),
    (hub_parquet, ":train", SINGLES, "captioned_parquet"),
    (hub_parquet_lists, "", TWO_CAPTIONS, "captioned_parquet"),
    (hub_parquet_rows, "", TWO_CAPTIONS, "captioned_parquet"),
    (sidecar_pairs, "", PAIRS, "paired_folders"),
    (folders_and_list, "", PAIRS, "paired_folders"),
    (folders_and_paths, "", PAIRS, "paired_folders"),
    (folders_and_lists, "", PAIRS, "paired_folders"),
    (pairs_csv, "", PAIRS, "caption_list"),
    (pairs_jsonl, "", PAIRS, "caption_list"),
    (pairs_listed, "", PAIRS, "caption_list"),
    (pairs_parquet, "", PAIRS, "captioned_parquet"),
    (numbered_parquet, "", PAIRS, "pairs"),
]


@pytest.mark.parametrize(("lay_out", "named", "sets", "kind"), LAYOUTS)
def test_a_layout_is_read_as_what_it_is(tmp_path, lay_out, named, sets, kind):
    lay_out(tmp_path / "x")
    index = open_index(f"{tmp_path / 'x'}{named}", tmp_path / "cache")
    assert read(index) == sets
    assert index.kind == kind
    groups = index.groups.tolist()
    assert len(set(groups)) == len(sets)  # a photo is a group, its counterfactual in it
    assert all(groups[a] == groups[a - 1] for a in range(1, len(index))
               if index.sets[a] == index.sets[a - 1])  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        "image,caption,counterfactual_image,caption_cf",
        "filepath,title,cf_filepath,cf_title",
        "image_1,caption_1,image_2,caption_2",
        "Image,Caption,CF Image,CF Caption",
        "original_image,original_caption,neg_image,neg_caption",
        "source_img,source_text,target_img,target_text",
    ],
)
def test_pairs_go_by_many_names(tmp_path, names):
    pairs_csv(tmp_path / "x", names)
    assert read(open_index(tmp_path / "x", tmp_path / "cache")) == PAIRS


def test_sets_of_several_counterfactuals(tmp_path):
    x = tmp_path / "x"
    images(x)
    record = {"id": "s", "image_0": "a.png", "caption_0": "A", "image_1": "b.png",
              "caption_1": "B", "image_2": "c.png", "caption_2": "C"}  # fmt: skip
    two = {name: None if name.endswith("2") else value for name, value in record.items()}
    jsonl(x / "sets.jsonl", [record, two | {"id": "t"}])
    index = open_index(x, tmp_path / "cache")
    members = list(zip("ABC", map(png, range(3)), strict=True))
    assert read(index) == [members, members[:2]]
    assert [index.key(row) for row in (0, 2, 3)] == ["s_0", "s_2", "t_0"]
    assert len(set(index.groups.tolist())) == 1


def test_several_counterfactuals_of_one_photo_are_sets_of_one_group(tmp_path):
    x = tmp_path / "x"
    images(x)
    rows = [("a.png", "A", f"{cf}.png", text) for cf, text in (("b", "B"), ("c", "C"))]
    table(x / "pairs.csv", ["image", "caption", "cf_image", "cf_caption"], rows)
    index = open_index(x, tmp_path / "cache")
    assert [[text for text, _ in members] for members in read(index)] == [["A", "B"], ["A", "C"]]
    assert len(set(index.groups.tolist())) == 1


def one_side_unnamed(x: Path) -> None:
    sidecar_pairs(x)
    (x / "counterfactual" / "b.jpg").unlink()


def hub_splits(x: Path) -> None:
    hub_metadata(x)
    images(x / "test")
    table(x / "test" / "metadata.csv", ["file_name", "text"], [("a.png", "x")])


def listed(columns: str, *rows: str) -> Callable[[Path], None]:
    """Lay out three images and a csv."""

    def lay_out(x: Path) -> None:
        images(x)
        (x / "captions.csv").write_text("\n".join([columns, *rows]) + "\n")

    return lay_out


def chat(x: Path) -> None:
    images(x)
    turns = [{"from": who, "value": "<image>?"} for who in ("human", "gpt", "human", "gpt")]
    (x / "chat.json").write_text(json.dumps([{"image": "a.png", "conversations": turns}]))


REFUSED: list[tuple[Callable[[Path], None], str]] = [
    (images, r"holds 3 images and nothing that says what they show: write captions\.csv"),
    (lambda x: sides(x, "original", "counterfactual"),
     r"original has no captions, .* a \.txt beside each image, or .*cf_caption"),
    (one_side_unnamed, r"original/b\.png has no partner of its name in .*counterfactual"),
    (hub_splits, r"has splits.*name one of .*x/test .3 images., .*x/train"),
    (hub_parquet, r"several splits; name one: .*x:test \(1 file\), .*x:train \(2 files\)"),
    (listed("image,caption", "a.png,a dog, running"), r"line 2: 3 fields, the header has 2"),
    (listed("image,caption,neg_caption", "a.png,a dog,a dog"),
     r"line 2: 'a dog' is both a caption and a negative"),
    (listed("image,caption", "a.png,\"['a', b']\""), r"line 2: .* like a list of captions "),
    (listed("image,caption,cf_image", "a.png,a dog,b.png"),
     r"line 2: 'cf_image' is the image of a set's member whose caption is missing"),
    (listed("image,caption,cf_mask", "a.png,a dog,b.png"), r"line 2: cf_mask looks like part of"),
    (listed("image,caption,text", "a.png,a dog,a cat"), r"line 2: .*caption, text could each be"),
    (listed("image,label", "a.png,dog"), r"[^2]: none of the columns caption, .*there are im"),
    (listed("image,caption,cf_image,cf_caption", "a.png,a dog,b.png,a dog"),
     r"line 2: a counterfactual says what another member does, 'a dog'"),
    (listed("image_0,caption_0,caption_1", "a.png,a,b"), r"'caption_1' is the caption of a set's"),
    (lambda x: (images(x), (x / "captions.txt").write_text("a.png a dog\n")),
     r"what they show \(captions\.txt: of no form that is kno"),
    (lambda x: (folders_and_list(x), (x / "captions.tsv").write_text("image\tcaption\na.png\tx\n")),
     r"captions\.csv, captions\.tsv"),
    (chat, r"\[0\]: the conversation is not a caption"),
]  # fmt: skip


@pytest.mark.parametrize(("lay_out", "said"), REFUSED)
def test_a_layout_that_cannot_be_read_is_refused_by_a_sentence(tmp_path, lay_out, said):
    lay_out(tmp_path / "x")
    assert_refused(tmp_path / "x", tmp_path / "cache", said)


def test_lists_of_something_else_beside_classes_are_passed_over(tmp_path):
    for label in ("cat", "dog"):
        images(tmp_path / "x" / label)
    table(tmp_path / "x" / "annotations.csv", ["image_id", "xmin", "xmax"], [("a", "1", "2")])
    table(tmp_path / "x" / "results.csv", ["epoch", "loss"], [("1", "2.5")])
    assert open_index(tmp_path / "x", tmp_path / "cache").kind == "image_folder"


@pytest.fixture
def elsewhere(tmp_path):
    """A list whose images lie in another folder, one named by its path, one from the list on."""
    images(tmp_path / "photos")
    images(tmp_path / "secret", start=5)
    (tmp_path / "secret" / "passwords.txt").write_text("x")
    rows = [(str(tmp_path / "photos" / "a.png"), "A"), ("../photos/b.png", "B")]
    table(tmp_path / "x" / "train.csv", ["filepath", "title"], rows, "\t")
    return tmp_path / "x"


def test_images_elsewhere_are_read_by_permission(tmp_path, elsewhere):
    cache, photos = tmp_path / "cache", tmp_path / "photos"
    assert_refused(elsewhere, cache, rf"leads out of .*'paths\.image_roots=\[{photos}\]'")
    index = open_index(elsewhere, cache, [photos])
    assert read(index) == [[("A", png(0))], [("B", png(1))]]
    with pytest.raises(UserError, match="leads out"):  # what was permitted once is not for ever
        open_index(elsewhere, cache)
    (photos / "a.png").write_bytes(png(7))
    again = open_index(elsewhere, cache, [photos])
    assert again.hash != index.hash
    assert read(again)[0] == [("A", png(7))]


@pytest.mark.parametrize("name", ["secret/a.png", "secret/none.png", "photos/../secret/a.png"])
def test_nothing_is_said_of_what_lies_outside_the_permitted_folders(tmp_path, elsewhere, name):
    """Whether a file is there or not, the answer is the same."""
    rows = [(str(tmp_path / name), "A")]
    table(elsewhere / "train.csv", ["filepath", "title"], rows, "\t")
    with pytest.raises(UserError, match="leads out") as caught:
        open_index(elsewhere, tmp_path / "cache", [tmp_path / "photos"])
    assert "no image" not in str(caught.value)


def test_a_path_into_the_folder_of_the_list_needs_no_permission(tmp_path):
    x = tmp_path / "x"
    images(x / "images")
    table(x / "captions.csv", ["image", "caption"], [(str(x / "images" / "a.png"), "A")])
    assert read(open_index(x, tmp_path / "cache")) == [[("A", png(0))]]


def test_backslashes_in_a_path_are_named_as_the_cause(tmp_path):
    images(tmp_path / "x" / "images")
    table(tmp_path / "x" / "captions.csv", ["image", "caption"], [("images\\a.png", "A")])
    assert_refused(
        tmp_path / "x", tmp_path / "cache", r"line 2: there is no image .* separated by / here"
    )
