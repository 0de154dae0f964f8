"""COCO's test photos in Karpathy's list, and what ECCV Caption and CxC say of them, as released."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.data.making import noise_image

PHOTOS = (391895, 60623, 483108, 384213, 386164, 223648)
WORDS = ("ball", "cube", "star", "cone", "ring", "disk")
CXC = "caption,image,agg_score,sampling_method"


def sentence(photo: int, member: int) -> int:
    return 700000 + 10 * photo % 9973 + member


def coco_name(photo: int) -> str:
    return f"COCO_val2014_{photo:012d}.jpg"


def karpathy(folder: Path, photos: Sequence[int] = PHOTOS) -> Path:
    """Lay out photos of COCO's test split, two captions each, and one to train on."""
    images = []
    for number, photo in enumerate((*photos, 522418)):
        file = folder / "val2014" / coco_name(photo)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(noise_image(number))
        sentences = [
            {"raw": f"{text} {WORDS[number % 6]}.", "sentid": sentence(photo, member)}
            for member, text in enumerate(("A red", "a large"))
        ]
        images.append({
            "filepath": "val2014", "filename": file.name, "cocoid": photo,
            "split": "test" if photo in photos else "restval", "sentences": sentences,
        })  # fmt: skip
    (folder / "dataset_coco.json").write_text(json.dumps({"images": images}))
    return folder


def eccv(folder: Path) -> Path:
    """Its two files: four images and three captions are asked, and one original pair is wrong."""
    folder.mkdir(exist_ok=True)
    a, b, c, d, *_ = PHOTOS
    i2t = {a: [sentence(a, 0), sentence(a, 1), sentence(b, 0)],
           b: [sentence(b, 1), sentence(c, 0), sentence(d, 1), sentence(a, 1)],
           c: [sentence(c, 1)], d: [sentence(d, 0), sentence(d, 1)]}  # fmt: skip
    t2i = {sentence(a, 1): [a, b], sentence(b, 0): [b, a, d], sentence(d, 0): [d]}
    for name, lists in (("image_to_caption", i2t), ("caption_to_image", t2i)):
        (folder / f"eccv_{name}.json").write_text(json.dumps(lists))
    return folder / "eccv_image_to_caption.json"


def cxc(file: Path, *more: str) -> Path:
    """Every original pair rated, one of them wrong, and three others, two of them right."""
    lines = [CXC]
    for photo in PHOTOS:
        for member in (0, 1):
            score = 2.71 if (photo, member) == (PHOTOS[0], 1) else 4.9
            lines.append(f"COCO_val2014:sentid:{sentence(photo, member)},{coco_name(photo)},"
                         f"{score},c2i_original")  # fmt: skip
    for of, shown, score in ((0, 1, 3.0), (4, 0, 4.2), (2, 3, 2.99)):
        lines.append(f"COCO_val2014:sentid:{sentence(PHOTOS[of], 0)},{coco_name(PHOTOS[shown])},"
                     f"{score},c2i_intrasim")  # fmt: skip
    file.write_text("\n".join([*lines, *more]) + "\n")
    return file
