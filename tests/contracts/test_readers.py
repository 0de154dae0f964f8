"""What every reader promises, for a folder of each form as users have it on disk.

A folder is recognised as what it is, opens to the same rows whenever it is opened, says when its
content has changed, and never shows a file from elsewhere; a damaged one ends in a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cfaug.core.errors import UserError
from cfaug.core.pixels import decode_image
from cfaug.data.index import Index, open_index
from cfaug.data.shards.shards import write_shards
from cfaug.data.sources import READERS, Reader, find_reader
from tests.data import compositional, edits, foils, layouts, test_layouts
from tests.data.making import noise_image, pair
from tests.data.released import coco_counterfactuals, laid_out, members
from tests.data.test_class_folders import CSV, food, lay, put
from tests.data.test_coco import lay_out_coco, lay_out_karpathy
from tests.data.test_cultural_counterfactuals import cultural, cultural_rows
from tests.data.test_index import as_prompts
from tests.data.test_photo_lists import ENCODED, OBJECTS, PAIRS, ROWS, coco_line, encoded, photos
from tests.data.test_photo_lists import write as entailment_parquet
from tests.data.test_social_counterfactuals import social, social_rows
from tests.data.test_sources import cifar, clip_benchmark_retrieval, hub, img2dataset

Lay = Callable[[Path], object]


def detections(folder: Path) -> None:
    photos(folder / "images", "000000000007.jpg", "000000000008.jpg")
    lines = [coco_line(0, 7, "a dog"), coco_line(1, 8, "a hat")]
    layouts.table(folder / "objects.csv", OBJECTS, lines)


def modified(folder: Path) -> None:
    photos(folder / "images", "000000000007.jpg", "000000000008.jpg")
    lines = [("7", "A dog runs.", "A wet dog runs."), ("8", "A cat.", "A red cat.")]
    layouts.table(folder / "eda.csv", ("image_id", "original", "modified"), lines)


def snli_ve(folder: Path) -> None:
    photos(folder / "flickr30k-images", "10.jpg", "20.jpg")
    layouts.jsonl(folder / "snli_ve_dev.jsonl", PAIRS)


def encoded_captions(folder: Path) -> None:
    lines = [encoded(1, "neutral", "a dog"), encoded(2, "entailment", "a pet")]
    layouts.table(folder / "objects.csv", ENCODED, lines)


def edit_list(folder: Path) -> None:
    edits.put(folder, "cat/1.png", "dog/2.png", "out/1.png", "out/2.png")
    lines = [("cat/1.png", "out/1.png", "fog", "cat"), ("dog/2.png", "out/2.png", "fog", "dog")]
    layouts.table(folder / "edits.csv", ("photo", "edit", "kind", "label"), lines)


LAID: dict[tuple[str, bool], Lay] = {
    ("shards", False): lambda x: write_shards([pair(n) for n in range(3)], x),
    ("winoground", False): compositional.winoground,
    ("mmvp_vlm", False): compositional.mmvp,
    ("naturalbench_retrieval", False): compositional.naturalbench,
    ("sugarcrepe", False): compositional.sugarcrepe,
    ("sugarcrepe_pp", False): compositional.sugarcrepe_pp,
    ("hard_positives", False): compositional.hard_positives,
    ("trohn_text", False): compositional.trohn_text,
    ("cola", False): foils.cola,
    ("colorswap", False): foils.colorswap,
    ("negbench", False): foils.negbench,
    ("negbench_retrieval", False): foils.negbench_retrieval,
    ("fairface", False): foils.fairface,
    ("ccneg", False): foils.ccneg,
    ("whatsup", False): foils.whatsup,
    ("valse", False): foils.valse,
    ("bla", False): foils.bla,
    ("vl_checklist", False): foils.vl_checklist,
    ("spec", False): lambda x: foils.spec(x, images=False),
    ("spec_images", False): lambda x: foils.spec(x, text=False),
    ("svo_probes", False): foils.svo_probes,
    ("half_truths", True): foils.half_truths,
    ("colorswap", True): foils.colorswap_parquet,
    ("winoground", True): compositional.winoground_parquet,
    ("bivlc", True): compositional.bivlc,
    ("vismin", True): compositional.vismin,
    ("sugarcrepe", True): compositional.sugarcrepe_parquet,
    ("aro_order", True): compositional.aro_parquet,
    ("trohn_img", True): compositional.trohn_img,
    ("coco_counterfactuals", True): coco_counterfactuals,
    ("pairs", True): test_layouts.numbered_parquet,
    ("members", True): lambda x: laid_out(x, members({})),
    ("social_counterfactuals", True): lambda x: social(x, social_rows("barber", "17", 0)),
    ("cultural_counterfactuals", True): lambda x: cultural(x, cultural_rows()),
    ("entailment_parquet", True): lambda x: entailment_parquet(x / "test.parquet", ROWS),
    ("labelled_parquet", True): lambda x: hub(x / "test.parquet"),
    ("captioned_parquet", True): test_layouts.hub_parquet_lists,
    ("cifar_binary", True): cifar,
    ("encoded_captions", True): encoded_captions,
    ("clip_benchmark", False): clip_benchmark_retrieval,
    ("webdataset", False): img2dataset,
    ("coco", False): lay_out_coco,
    ("karpathy", False): lambda x: lay_out_karpathy(x, coco=False),
    ("snli_ve", False): snli_ve,
    ("modified_captions", False): modified,
    ("detected_captions", False): detections,
    ("instruct_pix2pix", False): lambda x: as_prompts(x, noise_image(0)),
    ("food101", False): food,
    ("edit_list", False): edit_list,
    ("edited_folders", False): edits.lay,
    ("paired_folders", False): test_layouts.sidecar_pairs,
    ("label_list", False): lambda x: lay(x, CSV),
    ("caption_list", False): layouts.captions_csv,
    ("sidecar_text", False): lambda x: (layouts.images(x), layouts.sidecars(x, layouts.TEXTS)),
    ("image_folder", False): lambda x: put(x, "cat/1.png", "cat/2.png", "cup/1.png"),
}
"""{kind, imported: a function that lays out a folder of that form}."""
BESIDE = {
    ("aro_relation", False): "ARO's folder holds two tests, of which one is named",
    ("aro_attribution", False): "likewise",
    ("sugarcrepe_pp", True): "read as sugarcrepe's tables are",
    ("hard_positives", True): "likewise",
}
"""{kind, imported: why it has no folder of its own here}."""
SPLITS = {
    "trohn_text": "train", "karpathy": "test", "negbench_retrieval": "coco_negated_retrieval",
    "fairface": "val",
}  # fmt: skip
"""{kind: the split that is named}; its folder has several."""


@pytest.fixture(params=LAID, ids=lambda case: f"{case[0]}{'-imported' * case[1]}")
def case(request, tmp_path):
    LAID[request.param](tmp_path / "source")
    split = SPLITS.get(request.param[0])
    return *request.param, tmp_path / ("source" if split is None else f"source:{split}")


def files_of(source: Path) -> list[Path]:
    """Return the lists of a source, and an image of each of its folders."""
    files = [file for file in sorted(source.with_name("source").rglob("*")) if file.is_file()]
    images = [file for file in files if file.suffix in (".jpg", ".png")]
    of_folder = {image.parent: image for image in images}
    return [file for file in files if file not in images or of_folder[file.parent] == file]


def content(index: Index) -> list[tuple[object, ...]]:
    of = (index.key, index.group_name, index.text, index.label, index.extra_row, index.read_image)
    return [tuple(part(row) for part in of) for row in range(len(index))]


def test_every_reader_has_a_folder():
    assert {(reader.kind, reader.imported) for reader in READERS} == {*LAID, *BESIDE}
    assert all(isinstance(reader, Reader) for reader in READERS)
    assert all(reader.form and reader.description for reader in READERS)


def test_a_folder_is_recognised_and_opened_the_same_again(case, tmp_path):
    kind, imported, folder = case
    reader = find_reader(folder)
    assert (reader.kind, reader.imported) == (kind, imported)
    identity = json.dumps(reader.identity(folder), sort_keys=True)
    index = open_index(folder, tmp_path / "cache")
    contents = content(index)
    assert len(contents) > 0
    assert len({key for key, *_ in contents}) == len(contents)
    for row in range(len(index)):
        decode_image(index.read_image(row), index.image_name(row))
    assert index.reading is not None
    assert json.dumps(reader.identity(folder), sort_keys=True) == identity
    before = sorted(file.name for file in (tmp_path / "cache").iterdir())
    assert content(open_index(folder, tmp_path / "cache")) == contents
    assert sorted(file.name for file in (tmp_path / "cache").iterdir()) == before
    elsewhere = open_index(folder, tmp_path / "other")
    assert (elsewhere.hash, content(elsewhere)) == (index.hash, contents)


def test_a_file_that_matters_is_part_of_the_identity(case, tmp_path):
    """Without the file, either nothing changes or the identity does."""
    _, _, folder = case
    reader = find_reader(folder)
    contents = content(open_index(folder, tmp_path / "cache"))
    before, matter = json.dumps(reader.identity(folder)), 0
    for number, file in enumerate(files_of(folder)):
        file.rename(tmp_path / "taken")
        try:
            changed = json.dumps(find_reader(folder).identity(folder)) != before
            if not changed:
                assert content(open_index(folder, tmp_path / f"cache-{number}")) == contents, (
                    file.name
                )
        except UserError:
            changed = True
        matter += changed
        (tmp_path / "taken").rename(file)
    assert matter > 0


def test_a_link_out_of_the_folder_is_refused(case, tmp_path):
    _, _, folder = case
    file = files_of(folder)[0]
    secret = tmp_path / f"elsewhere{file.suffix}"
    file.rename(secret)
    file.symlink_to(secret)
    with pytest.raises(UserError, match="link"):
        open_index(folder, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_cut_file_ends_in_a_sentence_and_nothing_is_kept(case, tmp_path):
    _, _, folder = case
    for number, file in enumerate(files_of(folder)):
        whole, cache = file.read_bytes(), tmp_path / f"cache-{number}"
        file.write_bytes(whole[: len(whole) // 2])
        with suppress(UserError):
            assert content(open_index(folder, cache))
            cache = tmp_path / "cache-none"  # it was left out, or is not read
        assert not cache.exists() or not any(path.is_dir() for path in cache.iterdir())
        file.write_bytes(whole)
