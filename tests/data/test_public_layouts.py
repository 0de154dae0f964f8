"""Public data sets in their released layouts, written out at small size.

Each is read as what it is, is read with a note on what was assumed, or is refused with the way.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.core.types import CounterfactualSet, Member
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from tests.data.layouts import cells, jsonl, parquet
from tests.data.making import noise_image

Read = list[tuple[str, str | None]]
WAVE, DOGS = "a man riding a wave", "two dogs on the beach"


def photos(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(noise_image(100 + number, kind="PNG" if name[-3:] == "png" else "JPEG"))


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def vizwiz(x: Path) -> None:
    names = [f"VizWiz_val_{number:08d}.jpg" for number in range(2)]
    photos(x / "images", *names)
    said = [(0, WAVE, False), (0, "Quality issues are too severe.", True), (1, DOGS, False)]
    about = {
        "images": [{"file_name": name, "id": number} for number, name in enumerate(names)],
        "annotations": [
            {"image_id": photo, "caption": text, "is_precanned": bad, "is_rejected": bad}
            for photo, text, bad in said
        ],
    }
    write(x / "annotations.json", json.dumps(about))


def vizwiz_as_coco(x: Path) -> None:
    vizwiz(x)
    (x / "images").rename(x / "val")
    (x / "annotations").mkdir()
    (x / "annotations.json").rename(x / "annotations/captions_val.json")


def hub_arrays(x: Path) -> None:
    photos(x / "images", "1.jpg", "2.jpg")
    write(
        x / "captions.csv",
        'image,captions\n1.jpg,"[\'a dog on grass\' ""it\'s a dog""]"\n'
        "2.jpg,\"['a cat'\n 'the cat sits']\"\n",
    )


def recap_tars(x: Path) -> None:
    x.mkdir()
    with tarfile.open(x / "00000.tar", "w") as tar:
        for number, text in enumerate((WAVE, DOGS)):
            about = json.dumps({"caption": f"SHOP {number}", "re_caption": text}).encode()
            image = noise_image(number, kind="JPEG")
            parts = {"jpg": image, "txt": f"SHOP {number}".encode(), "json": about}
            for ending, content in parts.items():
                member = tarfile.TarInfo(f"{number:09d}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def refcoco(x: Path) -> None:
    photos(x / "images", "1.jpg", "2.jpg")
    lines = [("1.jpg", "left man"), ("1.jpg", "right man"), ("2.jpg", "dog")]
    jsonl(x / "refs.jsonl", [{"image": i, "bbox": [0, 0, 5, 5], "sentence": t} for i, t in lines])


def eurosat(x: Path) -> None:
    classes = ("AnnualCrop", "Forest")
    photos(x / "EuroSAT", *(f"{c}/{c}_{number}.jpg" for c in classes for number in (1, 2)))
    for split, number in (("train", 1), ("test", 2)):
        lines = (f"{k},{c}/{c}_{number}.jpg,{k},{c}\n" for k, c in enumerate(classes))
        write(x / f"EuroSAT/{split}.csv", ",Filename,Label,ClassName\n" + "".join(lines))


def chest_xray(x: Path) -> None:
    photos(x / "images", "1.png", "2.png", "3.png")
    labels = ("Hernia|Mass", "No Finding", "Mass")
    lines = (f"{number}.png,{label}\n" for number, label in enumerate(labels, 1))
    write(x / "labels.csv", "image,label\n" + "".join(lines))


def misdecoded(x: Path) -> None:
    photos(x / "images", "1.jpg", "2.jpg")
    write(x / "captions.csv", "image,caption\n1.jpg,a cafÃ©\n2.jpg,salt &amp; pepper\n")


def yolo(x: Path) -> None:
    photos(x, "1.jpg", "2.jpg")
    for number in (1, 2):
        write(x / f"{number}.txt", f"0 0.51 0.45 0.2 0.{number}\n")


def entities(x: Path) -> None:
    photos(x, "1.jpg", "2.jpg")
    for number in (1, 2):
        write(x / f"{number}.txt", f"[/EN#{number}/people A group] of friends .\n")


def imagenet_v2(x: Path) -> None:
    photos(x, *(f"imagenetv2-matched-frequency-format-val/{c}/{c}0a.jpeg" for c in (0, 2, 10)))


def cub(x: Path) -> None:
    names = [f"{c}/{c[4:]}_{n}.jpg" for c in ("001.Auk", "002.Black_Tern") for n in (1, 2)]
    photos(x / "images", *names)
    write(x / "images.txt", "".join(f"{n} {name}\n" for n, name in enumerate(names, 1)))
    write(x / "train_test_split.txt", "1 1\n2 0\n3 1\n4 0\n")
    write(x / "bounding_boxes.txt", "1 60.0 27.0 325.0 304.0\n")


def docci(x: Path, ending: str = "jsonl", names: tuple[str, str] = ("image", "caption")) -> None:
    rows = [("qual_test_00000", "qual_test"), ("train_00000", "train"), ("test_00000", "test")]
    photos(x / "images", *(f"{name}.jpg" for name, _ in rows))
    lines = [
        {"example_id": n, "split": s, names[0]: f"{n}.jpg", names[1]: f"photo {n}"} for n, s in rows
    ]
    jsonl(x / f"docci_descriptions.{ending}", lines)


def valse(x: Path) -> None:
    photos(x / "images", "v7w_1.jpg", "v7w_2.jpg", "v7w_3.jpg")
    entries = [
        {"image": f"v7w_{votes}.jpg", "caption": f"{votes} dogs", "foil": f"{votes + 1} dogs",
         "mturk": {"foil": 3 - votes, "caption": votes, "other": 0}, "lvis": 1}
        for votes in (1, 2, 3)
    ]  # fmt: skip
    write(x / "captions.json", json.dumps(entries))


def crisscrossed(x: Path) -> None:
    photos(x / "images", *(f"COCO_val2014_{n:012d}.jpg" for n in (1, 2)))
    rows = [(1, WAVE, 5.0), (2, DOGS, 0.25), (2, WAVE, 3.5)]
    lines = (f"{text},COCO_val2014_{n:012d}.jpg,{score},c2i\n" for n, text, score in rows)
    write(x / "sits_val.csv", "caption,image,agg_score,sampling_method\n" + "".join(lines))


def nouns(x: Path, texts: tuple[str, ...] = ("polar_bear", "bus", "a dog")) -> None:
    photos(x, *(f"{n}.jpg" for n in range(len(texts))))
    lines = (f'{n}.jpg,"{text}"\n' for n, text in enumerate(texts))
    write(x / "captions.csv", "image,caption\n" + "".join(lines))


def entailment_with_caption(x: Path) -> None:
    photos(x, "1.jpg", "2.jpg")
    labels = ("entailment", "neutral")
    rows = [
        {"image": f"{n}.jpg", "caption": f"{n} women", "hypothesis": "Men", "gold_label": label}
        for n, label in enumerate(labels, 1)
    ]
    jsonl(x / "ve.jsonl", rows)


def gqa_answers(x: Path) -> None:
    photos(x / "images", "n1.jpg", "n2.jpg")
    lines = [{"image": f"n{n}.jpg", "question": "Is it?", "caption": f"Yes, {n}"} for n in (1, 2)]
    jsonl(x / "captions.jsonl", lines)


def flickr30k(x: Path) -> None:
    photos(x / "flickr30k-images", "1000092795.jpg", "10002456.jpg")
    lines = (f"{n}.jpg#0\t{t}\n" for n, t in ((1000092795, WAVE), (10002456, DOGS)))
    write(x / "results_20130124.token", "".join(lines))
    write(x / "flickr30k_test.txt", "10002456\n")


def cub_texts(x: Path) -> None:
    cub(x)
    write(x / "text_c10/001.Auk/Auk_1.txt", "a bird\nwith a beak\n")


def food(x: Path, twice: str = "") -> None:
    classes = ("apple_pie", "sushi")
    photos(x / "images", *(f"{c}/{n}.jpg" for c in classes for n in (1, 2)))
    for split, number in (("train", 1), ("test", 2)):
        names = {c: [f"{c}/{number}", *([twice] if c in twice else [])] for c in classes}
        write(x / f"meta/{split}.json", json.dumps(names))


def docci_released(x: Path) -> None:
    docci(x, "jsonlines", ("image_file", "description"))


READ: dict[str, tuple[Callable[[Path], None], str, Read, str]] = {
    "VizWiz": (vizwiz, "", [(WAVE, None), (DOGS, None)], "1 captions marked is_rejected"),
    "VizWiz as COCO": (vizwiz_as_coco, "", [(WAVE, None), (DOGS, None)], "marked is_rejected"),
    "arrays by pandas": (
        hub_arrays, "",
        [(t, None) for t in ("a dog on grass", "it's a dog", "a cat", "the cat sits")], "",
    ),
    "Recap-DataComp": (
        recap_tars, "", [("SHOP 0", None), ("SHOP 1", None)], "columns not used: re_caption",
    ),
    "RefCOCO": (
        refcoco, "", [("left man", None), ("right man", None), ("dog", None)],
        "bbox says a region of the image",
    ),
    "EuroSAT": (
        eurosat, ":test",
        [("a photo of a Annual Crop", "AnnualCrop"), ("a photo of a Forest", "Forest")],
        "test is read; not train (2)",
    ),
    "ChestX-ray14": (
        chest_xray, "",
        [(f"a photo of a {c}", c) for c in ("Hernia|Mass", "No Finding", "Mass")],
        "several others joined (Hernia|Mass)",
    ),
    "misdecoded": (
        misdecoded, "", [("a cafÃ©", None), ("salt &amp; pepper", None)],
        "letters as they look if UTF-8 is read as another encoding",
    ),
    "YOLO": (
        yolo, "", [(f"0 0.51 0.45 0.2 0.{n}", None) for n in (1, 2)], "2 captions hold no letter",
    ),
    "Flickr30k Entities": (
        entities, "", [(f"[/EN#{n}/people A group] of friends .", None) for n in (1, 2)],
        "2 captions hold marks between the words",
    ),
    "ImageNet-V2": (imagenet_v2, "", [(f"a photo of a {c}", c) for c in ("0", "10", "2")], ""),
    "CUB": (
        cub, ":test",
        [("a photo of a Auk", "001.Auk"), ("a photo of a Black Tern", "002.Black_Tern")],
        "not train (2)",
    ),
    "VALSE": (
        valse, "", [(f"{n} dogs", None) for n in (1, 2, 3)],
        "of 3 captions 1 were found right by fewer than 2 annotators",
    ),
    "CrissCrossed Captions": (
        crisscrossed, "", [(WAVE, None), (DOGS, None), (WAVE, None)],
        "agg_score is 0.25 to 5 and below the middle in 1 of 3 rows",
    ),
    "nouns": (
        nouns, "", [(t, None) for t in ("polar_bear", "bus", "a dog")],
        "2 of 3 captions are single words (first 'polar_bear')",
    ),
    "tags": (
        lambda x: nouns(x, ("dog, grass, red ball", "a dog", "cat;sofa;tv")), "",
        [(t, None) for t in ("dog, grass, red ball", "a dog", "cat;sofa;tv")],
        "2 of 3 captions are lists of words",
    ),
    "Chinese": (
        lambda x: nouns(x, ("\u4e00\u53ea\u72d7", "\u72d7\u5728\u8349\u5730")), "",
        [("\u4e00\u53ea\u72d7", None), ("\u72d7\u5728\u8349\u5730", None)], "",
    ),
    "SNLI-VE with captions": (
        entailment_with_caption, "", [("1 women", None), ("2 women", None)],
        "read is the caption, not hypothesis",
    ),
    "GQA's answers": (
        gqa_answers, "", [("Yes, 1", None), ("Yes, 2", None)], "question is not read",
    ),
    "Flickr30k with a list of its test": (
        flickr30k, "", [(WAVE, None), (DOGS, None)], "not read: flickr30k_test.txt",
    ),
    "CUB with texts": (
        cub_texts, ":train",
        [("a photo of a Auk", "001.Auk"), ("a photo of a Black Tern", "002.Black_Tern")],
        "not read: 1 .txt in text_c10 that are called as images are",
    ),
    "Food-101 in json": (
        food, ":test",
        [("a photo of a apple pie", "apple_pie"), ("a photo of a sushi", "sushi")], "not train (2)",
    ),
    "Food-101, one photo of both splits": (
        lambda x: food(x, "sushi/1"), ":test",
        [("a photo of a apple pie", "apple_pie"), *[("a photo of a sushi", "sushi")] * 2],
        "1 images are in the list of the test and in another one (sushi/1)",
    ),
    "DOCCI": (docci, ":test", [("photo test_00000", None)], "not qual_test (1), train (1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_public_data_set_is_read_as_what_it_is(tmp_path, name):
    lay_out, split, expected, note = READ[name]
    lay_out(tmp_path / "set")
    index = open_index(f"{tmp_path / 'set'}{split}", tmp_path / "cache")
    assert [(index.text(row), index.label(row)) for row in range(len(index))] == expected
    assert index.reading is not None
    assert note in index.reading.line("data", "set")
    assert note or not index.reading.notes


def test_splits_in_our_own_shards_are_said_and_can_be_named(tmp_path):
    def of_split(number: int, split: str) -> CounterfactualSet:
        member = Member(f"photo {number}", "image", f"s{number}_0", extra={"split": split})
        image = noise_image(number, kind="JPEG")
        return CounterfactualSet(f"s{number}", f"g{number}", (member,), {"image": image}, {})

    sets = [of_split(number, split) for number, split in enumerate(("train", "train", "test"))]
    write_shards(iter(sets), tmp_path / "set")
    reading = open_index(tmp_path / "set", tmp_path / "cache").reading
    assert reading is not None
    assert "says test (1), train (2), and all are read" in reading.line("data", "set")
    named = open_index(f"{tmp_path / 'set'}:test", tmp_path / "cache")
    assert [named.text(row) for row in range(len(named))] == ["photo 2"]


def stanford_cars(x: Path) -> None:
    photos(x, *(f"{folder}/{n:05d}.jpg" for folder in ("cars_train", "cars_test") for n in (1, 2)))
    write(x / "devkit/cars_train_annos.mat", "MATLAB")


def stanford_cars_csv(x: Path) -> None:
    stanford_cars(x)
    write(x / "train.csv", "x1,y1,x2,y2,Class,image\n1,1,9,9,14,00001.jpg\n1,1,9,9,3,00002.jpg\n")


def pets(x: Path) -> None:
    names = ["Abyssinian_100", "Abyssinian_101", "american_bulldog_100"]
    photos(x / "images", *(f"{name}.jpg" for name in names))
    lines = "".join(f"{name} 1 1 1\n" for name in names)
    write(x / "annotations/list.txt", f"#Image CLASS-ID SPECIES BREED ID\n{lines}")
    write(x / "annotations/test.txt", "Abyssinian_101 1 1 1\n")


def celeba(x: Path) -> None:
    photos(x / "img_align_celeba", "000001.jpg", "000002.jpg")
    write(x / "list_attr_celeba.txt", "2\nMale Smiling \n000001.jpg -1  1\n000002.jpg  1  1\n")
    write(x / "list_eval_partition.txt", "000001.jpg 0\n000002.jpg 2\n")


def fgvc(x: Path) -> None:
    photos(x / "data/images", "0034309.jpg", "0034958.jpg")
    write(x / "data/images_variant_test.txt", "0034309 707-320\n0034958 727-200\n")


def dci(x: Path) -> None:
    photos(x / "photos", "sa_6641.jpg", "sa_6648.jpg")
    for name in ("sa_6641", "sa_6648"):
        write(x / f"complete/{name}.json", json.dumps({"image": f"{name}.jpg", "extra": "long"}))


def tiny_imagenet(x: Path) -> None:
    photos(x / "images", "val_0.JPEG", "val_1.JPEG")
    write(x / "val_annotations.txt", "val_0.JPEG\tn01443537\t0\t32\nval_1.JPEG\tn01629819\t0\t0\n")


def waterbirds(x: Path) -> None:
    names = [f"001.Auk/Auk_{number}.jpg" for number in range(3)]
    photos(x, *names)
    lines = (f"{n},{name},1,{n},0\n" for n, name in enumerate(names))
    write(x / "metadata.csv", "img_id,img_filename,y,split,place\n" + "".join(lines))


def hub_converted(x: Path) -> None:
    for language in ("de", "en"):
        for split in ("test", "train"):
            texts = {"image": cells(), "caption": [WAVE, DOGS, "a bus"]}
            parquet(x / language / split / "0000.parquet", texts)


def conceptual_captions(x: Path) -> None:
    photos(x / "images", "1.jpg", "2.jpg")
    write(x / "Train_GCC-training.tsv", f"{WAVE}\thttp://a/1.jpg\n{DOGS}\thttp://a/2.jpg\n")


def llava_instructions(x: Path) -> None:
    photos(x / "images", "1.jpg")
    ask = "<image>\nWhat colour is it?\nAnswer the question using a single word or phrase."
    chat = [{"from": "human", "value": ask}, {"from": "gpt", "value": "Red"}]
    write(x / "llava.json", json.dumps([{"image": "1.jpg", "conversations": chat}]))


def pope(x: Path) -> None:
    photos(x / "val2014", "COCO_val2014_000000310196.jpg", "COCO_val2014_000000210789.jpg")
    asked = {"image": "COCO_val2014_000000310196.jpg", "text": "Is there a dog?", "label": "no"}
    for setting in ("adversarial", "popular", "random"):
        write(x / f"coco_pope_{setting}.json", json.dumps(asked) + "\n")


def cifar_pickles(x: Path) -> None:
    for name in ("batches.meta", "data_batch_1", "test_batch"):
        (x / "cifar-10-batches-py").mkdir(parents=True, exist_ok=True)
        # The protocol, and a call of what the next line names: never made.
        (x / "cifar-10-batches-py" / name).write_bytes(b"\x80\x02cos\n_exit\nK\x09\x85R.")


def winoground_of_one_photo(x: Path) -> None:
    texts = {f"caption_{n}": [f"{n} {c}" for c in "abc"] for n in (0, 1)}
    rest = {name: [""] * 3 for name in ("tag", "secondary_tag", "collapsed_tag")}
    shown = {"image_0": cells(), "image_1": cells()}
    parquet(x / "data/test-00000-of-00001.parquet", {"id": [0, 1, 2], **shown, **texts, **rest})


def listed(image: str, *there: str) -> Callable[[Path], None]:
    def lay_out(x: Path) -> None:
        photos(x, *there)
        write(x / "captions.csv", f"image,caption\n{image},{WAVE}\n")

    return lay_out


REFUSED: dict[str, tuple[Callable[[Path], None], str, list[str]]] = {
    "Stanford Cars": (stanford_cars, "", ["has splits, not classes", "cars_test (2 images)"]),
    "Stanford Cars in csv": (
        stanford_cars_csv, "", ["cars_test/00001.jpg and cars_train/00001.jpg have this name"],
    ),
    "Oxford Pets": (pets, "", ["annotations/list.txt", "write labels.csv (image, label)"]),
    "Oxford Pets, its test": (pets, ":test", ["annotations/test.txt", "with a column split"]),
    "CelebA": (celeba, ":test", ["list_attr_celeba.txt", "list_eval_partition.txt"]),
    "FGVC-Aircraft": (fgvc, "", ["data/images_variant_test.txt"]),
    "DOCCI as released": (docci_released, ":test", ["docci_descriptions.jsonlines"]),
    "DCI": (dci, "", ["complete/sa_6641.json"]),
    "Tiny ImageNet": (tiny_imagenet, "", ["val_annotations.txt"]),
    "Waterbirds": (
        waterbirds,
        ":test",
        ["is img_filename the one that holds it? 'data.fields={image: img_filename}' says so"],
    ),
    "the Hub's parquet": (hub_converted, "", ["de/test", "en/train"]),
    "the Hub's parquet, a split": (hub_converted, ":test", ["name one of", "en/test"]),
    "CC3M": (conceptual_captions, "", ["none of the columns image", "the first line should name"]),
    "POPE": (pope, "", ["name one of", "val2014", "coco_pope_adversarial.json, coco_pope_popular"]),
    "CIFAR-10 for Python": (
        cifar_pickles, "", ["pickles of Python", "cifar-10-batches-py/data_batch_1", "binary"],
    ),
    "an archive": (lambda x: write(x / "cifar-10-python.tar.gz", "x"), "", ["unpack it there"]),
    "Winoground of one photo": (
        winoground_of_one_photo, "", ["holds no set", "3 items whose two photos are equal"],
    ),
    "Food-101 in json": (food, "", ["several splits", ":test (2 rows)"]),
    "LLaVA's instructions": (llava_instructions, "", ["'Red' is the answer to a question"]),
    "names in several folders": (
        listed("0001.jpg", "a/0001.jpg", "b/0001.jpg"), "",
        ["a/0001.jpg and b/0001.jpg have this name"],
    ),
    "lost zeros": (listed("139.jpg", "val/000000000139.jpg"), "", ["val/000000000139.jpg"]),
    "paths of another machine": (
        listed("/home/alice/coco/1.jpg", "images/1.jpg"), "",
        ["leads out of", "images/1.jpg has this name"],
    ),
    "no line of names": (
        lambda x: write(x / "captions.csv", f"1.jpg,{WAVE}\n2.jpg,{DOGS}\n"), "",
        ["'1.jpg' is a file: the first line should name the columns"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_public_data_set_that_cannot_be_read_is_refused_with_the_way(tmp_path, name):
    lay_out, split, said = REFUSED[name]
    lay_out(tmp_path / "set")
    with pytest.raises(UserError) as caught:
        open_index(f"{tmp_path / 'set'}{split}", tmp_path / "cache")
    assert [words for words in said if words not in str(caught.value)] == []
