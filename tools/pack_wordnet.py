"""Write cfaug/editing/wordnet.zip: WordNet 3.0 without glosses and sample sentences.

python tools/pack_wordnet.py /usr/share/wordnet      # where Debian's wordnet-base puts it

Files, names and byte offsets are those of WordNet (ImageNet names its classes by these offsets):
what the package does not read is replaced by spaces, which compress to nothing. The licence stays
at the top of every index and data file, as it demands.
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

from cfaug.core.atomic_files import replace_file
from cfaug.editing.wordnet import PACKED, PARTS

DATE = (2006, 12, 6, 0, 0, 0)  # of WordNet 3.0, so that the same input gives the same bytes


def pack(folder: Path, target: Path) -> None:
    """Write the files of WordNet in a folder to one zip; all are read before it is replaced."""
    files = {}
    for part in PARTS:
        index = (folder / f"index.{part}").read_bytes().split(b"\n")
        data = (folder / f"data.{part}").read_bytes().split(b"\n")
        files[f"index.{part}"] = b"\n".join(map(_without_pointers, index))
        files[f"data.{part}"] = b"\n".join(_without_gloss(line, part) for line in data)
        files[f"{part}.exc"] = (folder / f"{part}.exc").read_bytes()
    with replace_file(target) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_LZMA) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, DATE), content, zipfile.ZIP_LZMA)


def _without_pointers(line: bytes) -> bytes:
    """Return a line of an index with the offsets of its senses alone (wndb(5WN))."""
    if line.startswith(b"  ") or not line:
        return line
    fields = line.split()
    lemma, part, senses = fields[:3]
    return b" ".join([lemma, part, senses, b"0", senses, b"0", *fields[-int(senses) :]])


def _without_gloss(line: bytes, part: str) -> bytes:
    """Return a line of data of the same length: its words and, of nouns, the kinds of nouns."""
    if line.startswith(b"  ") or not line:
        return line
    fields = line.partition(b" | ")[0].split()
    start = 4 + 2 * int(fields[3], 16)
    kept = [
        pointer
        for at in range(start + 1, start + 1 + 4 * int(fields[start]), 4)
        if part == "noun" and (pointer := fields[at : at + 4])[0] in (b"@", b"~")
    ]
    short = [
        *fields[:start],
        b"%03d" % len(kept),
        *(field for pointer in kept for field in pointer),
    ]
    return (b" ".join(short) + b" | ").ljust(len(line))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, help="of index.noun, data.noun, noun.exc, ...")
    pack(parser.parse_args().folder, PACKED)
