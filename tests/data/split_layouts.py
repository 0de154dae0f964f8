"""Public data sets with splits, at small size: a layout, its split to name, and what is read then.

Each layout is written out by hand as its authors released it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.data.layouts import cells, images, jsonl, parquet, sidecars, table
from tests.data.making import noise_image, write_tar

NAMES = ("a.png", "b.png", "c.png")


def photos(folder: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        kind = "JPEG" if name.endswith("jpg") else "PNG"
        (folder / name).write_bytes(noise_image(number, kind=kind))


def flickr30k(x: Path) -> None:
    """nlphuji/flickr30k: lists in the cells of a csv, and a column of splits."""
    photos(x / "flickr30k-images", ["1000.jpg", "2000.jpg", "3000.jpg"])
    table(x / "flickr_annotations_30k.csv", ["raw", "sentids", "split", "filename", "img_id"], [
        ('["Two men", "Two friends"]', "[0, 1]", "train", "1000.jpg", "0"),
        ('["A dog runs", "A brown dog"]', "[2, 3]", "test", "2000.jpg", "1"),
        ('["A girl", "A child"]', "[4, 5]", "val", "3000.jpg", "2"),
    ])  # fmt: skip


def flickr30k_hub(x: Path) -> None:
    """The same on the Hub: one file called by a split, and all splits in it."""
    parquet(x / "data" / "test-00000-of-00001.parquet", {
        "image": cells(), "caption": [["Two men", "Two friends"], ["A dog runs"], ["A girl"]],
        "split": ["train", "test", "val"], "filename": ["1.jpg", "2.jpg", "3.jpg"],
    })  # fmt: skip


def mscoco_hub(x: Path) -> None:
    """A csv that datasets calls train whatever it is."""
    parquet(x / "train.parquet", {
        "image": cells(), "text": ["two men", "a dog runs", "a girl"],
        "split": ["restval", "test", "train"],
    })  # fmt: skip


def waterbirds(x: Path) -> None:
    """metadata.csv with numbers, its columns renamed as a list needs them."""
    names = ["001.Albatross/a.jpg", "002.Warbler/b.jpg", "002.Warbler/c.jpg", "001.Albatross/d.jpg"]
    photos(x, names)
    table(x / "metadata.csv", ["img_id", "image", "label", "split", "place"], [
        ("1", names[0], "waterbird", "0", "1"), ("2", names[1], "landbird", "0", "0"),
        ("3", names[2], "landbird", "2", "1"), ("4", names[3], "waterbird", "1", "1"),
        ("5", "002.Warbler/e.jpg", "waterbird", "2", "1"),
    ])  # fmt: skip
    photos(x, ["002.Warbler/e.jpg"])
    (x / "002.Warbler/e.jpg").write_bytes(noise_image(77, kind="JPEG"))


def celeba(x: Path) -> None:
    """Its partition joined to its classes."""
    names = ["000001.jpg", "000002.jpg", "000003.jpg", "000004.jpg"]
    photos(x / "images", names)
    table(x / "labels.csv", ["image", "label", "partition"], [
        (names[0], "smiling", "0"), (names[1], "neutral", "1"), (names[2], "smiling", "2"),
        (names[3], "neutral", "2"),
    ])  # fmt: skip


def birds_525(x: Path) -> None:
    """Kaggle's 525 birds: a column ``data set`` of another name, folders of splits."""
    names = ["train/WREN/1.jpg", "train/CROW/1.jpg", "test/WREN/1.jpg", "test/CROW/2.jpg"]
    photos(x, [*names, "valid/WREN/1.jpg"])
    table(x / "birds.csv", ["class id", "filepath", "label", "data set"], [
        ("0", names[0], "WREN", "train"), ("1", names[1], "CROW", "train"),
        ("0", names[2], "WREN", "test"), ("1", names[3], "CROW", "test"),
        ("0", "valid/WREN/1.jpg", "WREN", "valid"),
    ])  # fmt: skip


def fer2013(x: Path) -> None:
    """FER2013's Usage: Training, PublicTest, PrivateTest."""
    photos(x, ["1.png", "2.png", "3.png", "4.png"])
    table(x / "labels.csv", ["image", "class", "Usage"], [
        ("1.png", "happy", "Training"), ("2.png", "sad", "PublicTest"),
        ("3.png", "happy", "PrivateTest"), ("4.png", "sad", "PrivateTest"),
    ])  # fmt: skip


def rsicd(x: Path) -> None:
    """RSICD: a json of images with their split, one row an image, in ``metadata.json``."""
    photos(x / "images", ["airport_1.jpg", "beach_2.jpg", "farm_3.jpg"])
    (x / "captions.json").write_text(json.dumps([
        {"filename": "airport_1.jpg", "sentences": ["an airport"], "split": "train"},
        {"filename": "beach_2.jpg", "sentences": ["a beach", "the sea"], "split": "test"},
        {"filename": "farm_3.jpg", "sentences": ["a farm"], "split": "val"},
    ]))  # fmt: skip


def coco_like(x: Path) -> None:
    """An object of images and annotations, each image with its split."""
    photos(x / "images", list(NAMES))
    splits = ["train", "test", "val"]
    (x / "annotations.json").write_text(json.dumps({
        "images": [{"id": i, "file_name": NAMES[i], "split": splits[i]} for i in range(3)],
        "annotations": [{"image_id": i, "caption": f"picture {i}"} for i in range(3)],
    }))  # fmt: skip


def textcaps(x: Path) -> None:
    """TextCaps's ``set_name``, a JSON object a line."""
    photos(x, list(NAMES))
    jsonl(x / "captions.jsonl", [
        {"image": NAMES[0], "caption": "a sign", "set_name": "train"},
        {"image": NAMES[1], "caption": "a bottle", "set_name": "val"},
        {"image": NAMES[2], "caption": "a book", "set_name": "test"},
    ])  # fmt: skip


def pope_extra(x: Path) -> None:
    """The split inside ``extra``."""
    photos(x, list(NAMES))
    jsonl(x / "captions.jsonl", [
        {"image": name, "caption": f"photo {i}", "extra": {"Subset": split}}
        for i, (name, split) in enumerate(zip(NAMES, ["TRAIN", "DEV", "TEST"], strict=True))
    ])  # fmt: skip


def cc3m_tars(x: Path) -> None:
    """img2dataset's tars of a tsv with a column of splits."""
    files = {}
    for i, split in enumerate(["train", "validation", "train"]):
        about = json.dumps({"caption": f"photo {i}", "split": split, "status": "success"}).encode()
        files |= {f"{i:09d}.jpg": noise_image(i, kind="JPEG"), f"{i:09d}.json": about,
                  f"{i:09d}.txt": f"photo {i}".encode()}  # fmt: skip
    write_tar(x / "00000.tar", files)


def cub(x: Path) -> None:
    """CUB-200-2011: class folders, images.txt and train_test_split.txt."""
    names = [f"{n:03d}.{bird}/{bird}_{i}.jpg" for n, bird in ((1, "Albatross"), (2, "Wren"))
             for i in range(3)]  # fmt: skip
    photos(x / "images", names)
    (x / "images.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(names, 1)))
    flags = [1, 1, 0, 1, 0, 0]
    lines = (f"{i} {flag}\n" for i, flag in enumerate(flags, 1))
    (x / "train_test_split.txt").write_text("".join(lines))
    (x / "classes.txt").write_text("1 001.Albatross\n2 002.Wren\n")


def sun397(x: Path) -> None:
    """Class folders and lists called by splits, as EuroSAT, UCF or SUN have them."""
    names = [f"{c}/{c}_{i}.jpg" for c in ("abbey", "zoo") for i in range(2)]
    photos(x / "images", names)
    for split, some in (("train", names[::2]), ("test", names[1::2])):
        (x / f"{split}.txt").write_text("".join(f"{name}\n" for name in some))


def mvtec(x: Path) -> None:
    """MVTec: in the folder of each class the folders of the splits."""
    photos(x, [f"{c}/{s}/good/{i}.png" for c in ("bottle", "cable") for s in ("train", "test")
               for i in range(2)])  # fmt: skip


def coco_folders(x: Path) -> None:
    """A list whose images lie in COCO's folders."""
    photos(x, ["train2017/1.jpg", "val2017/2.jpg", "val2017/3.jpg"])
    table(x / "captions.csv", ["file_name", "caption"], [
        ("train2017/1.jpg", "a dog"), ("val2017/2.jpg", "a cat"), ("val2017/3.jpg", "a bus"),
    ])  # fmt: skip


def beside_each(x: Path) -> None:
    """A text beside each image, in folders of splits."""
    for number, split in enumerate(("train", "valid")):
        images(x / "data" / split, start=10 * number)
        sidecars(x / "data" / split, {n: f"{split} {n}" for n in "abc"})


def hub_labels(x: Path) -> None:
    """Classes in parquet with a column of splits, FairFace and the like."""
    parquet(x / "all.parquet", {
        "image": [*cells(), *cells(20)], "label": ["a", "b", "a", "b", "a", "b"],
        "split": ["train", "train", "val", "val", "val", "train"],
    })  # fmt: skip


def entailments(x: Path) -> None:
    """SNLI-VE and the like in one file."""
    parquet(x / "train-00000-of-00001.parquet", {
        "image": cells(), "hypothesis": ["a dog", "a cat", "a bus"],
        "label": ["entailment", "neutral", "neutral"], "split": ["train", "dev", "test"],
    })  # fmt: skip


def pairs_hub(x: Path) -> None:
    """Pairs in the columns of COCO-Counterfactuals on the Hub."""
    parquet(x / "all.parquet", {
        "id": ["1", "2", "3"], "image_0": cells(), "image_1": cells(30),
        "caption_0": ["a dog", "a cat", "a bus"], "caption_1": ["a wolf", "a lion", "a car"],
        "subset": ["train", "test", "test"],
    })  # fmt: skip


def prompts(x: Path) -> None:
    """InstructPix2Pix's folders, each prompt with its split."""
    for number, split in enumerate(("train", "test")):
        folder = x / f"{number:07d}"
        photos(folder, ["11_0.jpg", "11_1.jpg"])
        (folder / "11_1.jpg").write_bytes(noise_image(40 + number, kind="JPEG"))
        about = {"input": f"a dog {number}", "output": f"a wolf {number}", "split": split}
        (folder / "prompt.json").write_text(json.dumps(about))


CAPTIONED: dict[Callable[[Path], None], tuple[str, list[str]]] = {
    flickr30k: ("test", ["A dog runs", "A brown dog"]),
    flickr30k_hub: ("test", ["A dog runs"]),
    mscoco_hub: ("train+restval", ["two men", "a girl"]),
    rsicd: ("test", ["a beach", "the sea"]),
    coco_like: ("val", ["picture 2"]),
    textcaps: ("val", ["a bottle"]),
    pope_extra: ("dev", ["photo 1"]),
    cc3m_tars: ("train", ["photo 0", "photo 2"]),
    coco_folders: ("val2017", ["a cat", "a bus"]),
    beside_each: ("valid", ["valid a", "valid b", "valid c"]),
    entailments: ("dev", ["a cat"]),
    prompts: ("test", ["a dog 1", "a wolf 1"]),
    pairs_hub: ("test", ["a cat", "a lion", "a bus", "a car"]),
}
CLASSES: dict[Callable[[Path], None], tuple[str, list[str]]] = {
    waterbirds: ("test", ["landbird", "waterbird"]),
    celeba: ("2", ["smiling", "neutral"]),
    birds_525: ("test", ["WREN", "CROW"]),
    fer2013: ("PrivateTest", ["happy", "sad"]),
    cub: ("test", ["001.Albatross", "002.Wren", "002.Wren"]),
    sun397: ("train", ["abbey", "zoo"]),
    mvtec: ("test", ["bottle", "bottle", "cable", "cable"]),
    hub_labels: ("val", ["a", "b", "a"]),
}
