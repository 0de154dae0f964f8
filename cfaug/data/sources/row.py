"""What every reader yields: rows of clean values, and errors collected."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar

from cfaug.core.errors import UserError, name_some
from cfaug.core.pixels import Digest
from cfaug.core.safety.json_text import load_json
from cfaug.core.text import require_unicode
from cfaug.core.types import ENTAILMENT, KEY_PATTERN

T = TypeVar("T")
NEGATIVES = "negatives"
"""Key in a member's ``extra``: a list of captions that are wrong about its image."""
NAMED_AT_ONCE = 5
"""Number of errors that a message names: enough to see a pattern, few enough to read."""


class Row(NamedTuple):
    """One image-text pair: the place of its image, its text, and its set.

    Rows of a set are adjacent, with ``member`` counting from 0, and only they may share an image,
    which then has the same ``image_id``. ``digest`` identifies the image's content; ``where`` names
    it in messages. ``edited`` marks a caption that is an edit of another member's; ``negatives``
    are captions that are wrong about the image and have no image themselves; ``extra`` has further
    values of the pair, JSON by name, which become columns of the index. ``box`` is the visible part
    of the image (left, top, right, bottom in pixels), if that is not all; the digest is then that
    of the box, ``Digest.of_box``.
    """

    set: str
    member: int
    group: str
    text: str
    label: str | None
    image_id: str
    file: str
    offset: int
    length: int
    digest: Digest
    where: str
    edited: bool = False
    negatives: tuple[str, ...] = ()
    extra: Mapping[str, Any] = MappingProxyType({})
    box: tuple[int, int, int, int] | None = None


@dataclass(frozen=True)
class Description:
    """The content of a folder that a reader reads, and the content that it leaves out.

    Attributes:
        used: the columns that are read, by their names there; empty for a form without columns.
        left_out: other content that is not read, a phrase each.
        notes: sentences about what was read and may not be meant, such as a column that says the
            split.
        renamed: ``NAME=COLUMN`` of each column that ``data.fields`` renamed.
        columns: the columns that were seen, by their own names, kept with ``data.fields`` alone.
    """

    used: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return the description as JSON, with what ``data.fields`` renamed only if anything."""
        usual = ("used", "unused", "left_out", "notes")
        return {name: value for name, value in asdict(self).items() if value or name in usual}

    @classmethod
    def of_columns(cls, used: Iterable[str], there: Iterable[str]) -> Description:
        """Divide the existing columns into used and unused ones, each once, in their order.

        >>> Description.of_columns(
        ...     ["image", "text"], ["image", "width", "text"]
        ... )  # doctest: +ELLIPSIS
        Description(used=('image', 'text'), unused=('width',), left_out=(), notes=(), ...)
        """
        names, wanted = tuple(dict.fromkeys(there)), set(used)
        return cls(
            tuple(name for name in names if name in wanted),
            tuple(name for name in names if name not in wanted),
        )


class Reader:
    """One form of data: how it is recognised, and what it yields when opened.

    A form whose images are files, or ranges of bytes of files, is read in place, as ``Row``s.
    One whose images lie inside a zip or a parquet file is imported into shards on first use: it
    yields ``CounterfactualSet``s, with their images.

    Attributes:
        form: the name of the form in reports: "112 images read as FORM".
        description: the content of a folder of this form, for the error that lists the forms.
        imported: whether it yields sets, which are imported into shards.
        has_parts: whether a part of such a folder can be named, ``FOLDER:SPLIT`` or one of its
            lists; ``recognises`` and ``open`` then take it as well.
    """

    kind: str
    form: str
    description: str
    imported: ClassVar[bool] = False
    has_parts: ClassVar[bool] = False

    def recognises(self, path: Path) -> bool:
        """Return whether a folder has this form, by names of files and columns alone."""
        raise NotImplementedError

    def reads(self, path: Path) -> bool:
        """Return whether this is a folder of this form, or a part of one."""
        return (self.has_parts or path.is_dir()) and self.recognises(path)

    def with_roots(self, image_roots: Sequence[Path]) -> Reader:
        """Return this reader with further absolute folders, in which a list may name images."""
        return self

    def files(self, path: Path) -> list[Path]:
        """Return the files with the images, in the order of reading."""
        return []

    def describe(self, path: Path) -> Description:
        """Return what is read from a folder and what is not; called once, after ``open``."""
        return Description()

    def identity(self, path: Path) -> Any:
        """Return JSON that changes whenever the content may have changed."""
        raise NotImplementedError

    def open(self, path: Path) -> Iterator[Any]:
        """Yield every row or set, or raise UserError naming the invalid example."""
        raise NotImplementedError


class HeaderError(UserError):
    """A mistake in the header of a table, which all its lines share: it is said once."""


class ErrorCollector:
    """Collects errors of single examples, so that one error names several of them."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Note a UserError and continue, until there are enough of them."""
        try:
            yield
        except HeaderError:
            raise
        except UserError as error:
            self.note(error)

    def note(self, error: UserError) -> None:
        """Note an error; raise all of them if there are enough."""
        self._messages.append(str(error))
        if len(self._messages) == NAMED_AT_ONCE:
            self._messages.append("(there may be more)")
            self.report()

    def report(self) -> None:
        """Raise the collected errors, if there are any."""
        if self._messages:
            raise UserError("\n".join(self._messages))


def known(value: T | None) -> T:
    """Return what a reader finds in every folder that it recognises."""
    assert value is not None
    return value


def files_identity(files: list[Path]) -> list[list[Any]]:
    """Return name, size and time of each file, which identify a cached index."""
    about = ((file, file.stat()) for file in files)
    return [[str(file), stat.st_size, stat.st_mtime_ns] for file, stat in about]


# Checks and normalisation of keys, captions and other values for all readers.

LIST_IN_A_CELL = re.compile(r"\s*\[\s*['\"].*['\"]\s*,?\s*\]\s*", re.DOTALL)
"""A list of captions in a field of a csv: NegCLIP's negatives, or a list written by pandas."""
_STRING = re.compile(r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\"")
PRINTED_ARRAY = re.compile(
    rf"\s*+\[\s*+(?:{_STRING.pattern})(?:\s++(?:{_STRING.pattern}))++\s*+\]\s*+", re.DOTALL
)
"""Texts as NumPy prints an array of them: blanks between them, and no commas."""


def keep_json(record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the values of a record that JSON can represent, times and the like as texts.

    NaN, by which pandas means a missing number, and infinities become ``None``.

    >>> keep_json({"width": 3, "image": b"PNG", "boxes": [[0, 1]]}, ["width", "image", "boxes"])
    {'width': 3, 'boxes': [[0, 1]]}
    >>> keep_json({"height": float("nan")}, ["height"])
    {'height': None}
    """

    def as_text(value: object) -> str:
        if isinstance(value, bytes | bytearray | memoryview):
            raise TypeError
        return str(value)

    kept = {}
    for name in names:
        with suppress(TypeError, ValueError):
            text = json.dumps(record[name], default=as_text)
            kept[name] = load_json(text, parse_constant=lambda _: None)
    return kept


def clean_key(name: str) -> str:
    """Return a key that is valid in WebDataset, tar and file systems.

    A name that has to be changed gets a suffix derived from it, so that different names stay
    different.

    >>> clean_key("000123"), clean_key("Cats/IMG 001.v2")
    ('000123', 'cats-img-001-v2-10ff5d71')
    """
    if KEY_PATTERN.fullmatch(name):
        return name
    readable = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{readable}-{digest}" if readable else digest


def whole(value: Any) -> Any:
    """Return a float without a fraction as the whole number, any other value as it is.

    pandas writes a column of whole numbers in which one is missing as floats.

    >>> whole(42.0), whole(0.5), whole("42.0")
    (42, 0.5, '42.0')
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


def group_name(value: object) -> str:
    """Return the name of a photo's group, the same for 7, 7.0 and, in a csv by pandas, "7.0".

    >>> group_name(7), group_name(7.0), group_name("7.0"), group_name("v1.0")
    ('7', '7', '7', 'v1.0')
    """
    return re.sub(r"^(\d+)\.0$", r"\1", str(value))


def caption(text: object, where: str) -> str:
    """Return a caption as one line."""
    if is_null(text):
        raise UserError(f"{where}: the caption is missing; write one or remove the example")
    if not isinstance(text, str):
        raise UserError(f"{where}: the caption should be a text, not {text!r}")
    line = " ".join(text.split())
    if not line:
        raise UserError(f"{where}: the caption is empty; write one or remove the example")
    return require_unicode(line, where)


def is_null(value: object) -> bool:
    """Return whether a field has no value: null, or NaN, by which pandas writes it.

    >>> is_null(None), is_null(float("nan")), is_null(""), is_null(0)
    (True, True, False, False)
    """
    return value is None or value != value


def captions(value: object, where: str) -> list[str]:
    """Return the captions in a field: one, or a list of them, possibly printed in a csv."""
    if isinstance(value, str) and LIST_IN_A_CELL.fullmatch(value):
        cell = value
        with suppress(ValueError, RecursionError):
            value = load_json(cell)
        try:
            if value is cell and PRINTED_ARRAY.fullmatch(cell):
                # Python would join the texts into one, as there are no commas between them.
                value = [ast.literal_eval(text[0]) for text in _STRING.finditer(cell)]
            elif value is cell:
                value = ast.literal_eval(cell.strip())  # literals only: nothing is executed
        except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise UserError(
                f"{where}: {cell[:80]!r} begins and ends like a list of captions but is invalid"
            ) from error
    texts = value if isinstance(value, list) else [value]
    return [caption(text, where) for text in texts or [""]]


def class_caption(label: str) -> str:
    """Return the caption of an example that has only a class.

    >>> class_caption("polar_bear")
    'a photo of a polar bear'
    """
    return f"a photo of a {class_words(label)}"


def entailment_label(label: object, where: str) -> str:
    """Return a label of ``cfaug.core.types.ENTAILMENT``.

    >>> entailment_label(" Neutral", "line 1")
    'neutral'
    """
    normalised = label.strip().lower() if isinstance(label, str) else label
    if normalised not in ENTAILMENT:
        raise UserError(
            f"{where}: the label {label!r:.80} is invalid: choose from {', '.join(ENTAILMENT)}"
        )
    return str(normalised)


def one_class_error(
    source: str, form: str, images: int, label: str, lists: Sequence[str] = ()
) -> UserError:
    """Return the error for images without captions that are all of one class.

    Args:
        lists: the names of files that name these images, and are of no form that is known.
    """
    if lists:
        return UserError(
            f"{source}: {images:,} images, all in the folder {label!r}, and named by "
            f"{name_some(lists)}, whose form is not known. If that is where their classes or "
            "captions stand, write labels.csv (image, label) or captions.csv (image, caption) "
            f"into {source}, with a column split if there are several"
        )
    return UserError(
        f"{source}: {images:,} images read as {form}, all of one class, {label!r}: each caption "
        f"would be {class_caption(label)!r}, from which nothing can be learned or tested. If "
        f"{label!r} is not a class, the images need captions: captions.csv or captions.jsonl "
        "(image, caption) beside them, or a .txt beside each image. If it is, name the "
        "folder that holds the folders of all classes"
    )


# Names of classes: labels of released data sets as words.
#
# CLIP's authors rewrote the class names of ImageNet and Caltech-101 for prompts; CLIP_benchmark and
# open_clip use these names, and so do we. Other labels are converted to words.

IMAGENET = Path(__file__).with_name("imagenet_classes.tsv")
"""WordNet ids with the names of OpenAI's CLIP (MIT licence), which open_clip lists without ids."""
WNID = re.compile(r"n\d{8}")
CALTECH_101 = {
    "BACKGROUND_Google": "background", "Faces": "off-center face", "Faces_easy": "centered face",
    "Leopards": "leopard", "Motorbikes": "motorbike", "airplanes": "airplane",
    "car_side": "side of a car", "cougar_body": "body of a cougar cat",
    "cougar_face": "face of a cougar cat", "crocodile_head": "head of a crocodile",
    "flamingo_head": "head of a flamingo", "snoopy": "snoopy (cartoon beagle)",
    "yin_yang": "yin and yang symbol",
}  # fmt: skip
"""CLIP's names of folders with other names; the rest are converted to words."""
CALTECH_101_ONLY = {"BACKGROUND_Google", "Faces_easy"}
"""Folders that distinguish Caltech-101 from other data sets with a class called "Faces"."""


@lru_cache(maxsize=1)
def imagenet_names() -> dict[str, str]:
    """Return CLIP's name of each of ImageNet's 1,000 classes by WordNet id, in the ids' order."""
    lines = IMAGENET.read_text(encoding="utf-8").splitlines()
    return dict(line.split("\t") for line in lines)


NUMBER = re.compile(r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.IGNORECASE)


def require_names(names: Sequence[str], where: str, remedy: str) -> None:
    """Refuse classes that are all called by numbers, of which a text encoder knows nothing.

    Some numbers among names may be names, such as ``7`` for a drink.
    """
    if names and all(is_number(name) for name in names):
        raise UserError(
            f"{where}: the {len(names):,} classes are called by numbers ({name_some(names)}), not "
            f"by names to {remedy}"
        )


def is_number(name: str) -> bool:
    """Return whether a name of a class is just a number.

    >>> [is_number(name) for name in ("00000", "7", "0.0", "-1", "1e3", ".5")]
    [True, True, True, True, True, True]
    >>> [is_number(name) for name in ("7 up", "n01440764", "3D", "e3", "1-2", "")]
    [False, False, False, False, False, False]
    """
    return NUMBER.fullmatch(name.strip()) is not None


def equal_names(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return groups of class names that a tokenizer that lower-cases, as CLIP's, reads as one.

    >>> equal_names(["cat", "dog", "Cat", "polar  bear", "Polar bear", "dog"])
    [('cat', 'Cat'), ('dog', 'dog'), ('polar  bear', 'Polar bear')]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(" ".join(name.casefold().split()), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def equal_names_warning(names: Sequence[str], where: str) -> str | None:
    """Return a warning of classes with equal prompts; ``None`` if all prompts differ."""
    groups = equal_names(names)
    if not groups:
        return None
    some = name_some(" and ".join(map(repr, group)) for group in groups)
    return (
        f"warning: {where}: classes with one prompt for a tokenizer that lower-cases, as CLIP's "
        f"does: {some}. Nothing tells them apart: merge them, or give them different names"
    )


ID_BEFORE = re.compile(r"(n\d{8})[\s._,-]+(?=\S)")
"""A WordNet id before a name, as in Stanford Dogs (``n02085620-Chihuahua``)."""
ID_AFTER = re.compile(r"(?<=\S)[\s._,(-]+(n\d{8})\)?$")
NUMBERED = re.compile(r"(?:\d{3}\.|0\d*[._-]|\d{3,}_)\s*(?=[^\W\d_])")
"""A number before a name, as in CUB (``001.Black_footed_Albatross``): not that of ``747-400``."""
CAMEL = re.compile(r"(?!Mac|You[A-Z]|Play[A-Z])[^\W\d_][a-z]{2,}(?:[A-Z][a-z]{2,})+")
"""Words without spaces, as in EuroSAT (``AnnualCrop``): not ``McDonald`` or ``iPod``."""


def wordnet_id(label: str) -> str | None:
    """Return the WordNet id that a label is, or has before or after its name.

    >>> wordnet_id("n01440764"), wordnet_id("n02085620-Chihuahua"), wordnet_id("tench")
    ('n01440764', 'n02085620', None)
    """
    match = WNID.fullmatch(label) or ID_BEFORE.match(label) or ID_AFTER.search(label)
    return match and match[match.re.groups]


def class_words(label: str) -> str:
    """Return a label as words: ImageNet's ids by name, without ids and numbers of a release.

    >>> class_words("n01440764"), class_words("polar_bear"), class_words("t-shirt")
    ('tench', 'polar bear', 't-shirt')
    >>> class_words("012.polar_bear"), class_words("251.airplanes-101")  # as Caltech-256 has them
    ('polar bear', 'airplanes')
    >>> class_words("046.computer-monitor"), class_words("n02085620-Chihuahua")
    ('computer monitor', 'Chihuahua')
    >>> class_words("AnnualCrop"), class_words("Boeing 747-400"), class_words("McDonald")
    ('Annual Crop', 'Boeing 747-400', 'McDonald')
    """
    if WNID.fullmatch(label):
        return imagenet_names().get(label, label)
    name = ID_AFTER.sub("", ID_BEFORE.sub("", label, count=1))
    numbered = re.fullmatch(r"\d{3}\.(.+?)(?:-101)?", name)
    if numbered:
        name = numbered[1].replace("-", " ")
    name = NUMBERED.sub("", name, count=1) if NUMBERED.match(name) else name
    words = name.replace("_", " ").split()
    if len(words) == 1 and CAMEL.fullmatch(words[0]):
        words = re.findall(r"[^\W\d_][a-z]+", words[0])
    return " ".join(words)


NO_NAME = re.compile(
    r"(?i:.*\bn\d{8}\b.*|\d+|(?:class|cls|label|category|cat|id)[ _-]?\d+)|[a-z]\d{1,3}"
    r"|(?=.*\d)[0-9a-f]{12,}"
)
"""A label that was not read as a name: an id, a number, ``class_12``, ``c0``, a hash."""
NUMBER_LED = re.compile(r"\d+[._]\s*[^\W\d_]")


def names_warning(
    labels: Sequence[str], names: Sequence[str], where: str, remedy: str
) -> str | None:
    """Return what is to be said of class names in prompts; ``None`` if nothing is.

    That is which could not be read as names, and how others were read.
    """
    unread = [
        name
        for label, name in zip(labels, names, strict=True)
        if NO_NAME.fullmatch(name) or (name[:1].isdigit() and NUMBER_LED.match(label))
    ]
    if unread:
        return (
            f"warning: {where}: {len(unread):,} of {len(names):,} classes have no name that can be "
            f"read ({name_some(unread)}): a text encoder knows nothing of 'a photo of a "
            f"{unread[0]}'. {remedy}"
        )
    pairs = zip(labels, names, strict=True)
    plain = {
        name: label for label, name in pairs if name.split() != label.replace("_", " ").split()
    }
    read = [f"{label} is {name!r}" for name, label in plain.items() if not WNID.fullmatch(label)]
    if not read:
        return None
    return f"{where}: names of classes are read as words: {name_some(read)}"


def prompt_names(labels: Sequence[str]) -> list[str]:
    """Return the names of a data set's classes in prompts, in the order of its labels."""
    if CALTECH_101_ONLY & set(labels):
        return [CALTECH_101.get(label, class_words(label)) for label in labels]
    return [class_words(label) for label in labels]


def make_distinct(names: Sequence[str]) -> list[str]:
    """Return class names as distinct labels: ImageNet has two classes called "sunglasses".

    >>> make_distinct(["cat", "sunglasses", "sunglasses"])
    ['cat', 'sunglasses', 'sunglasses (2)']
    """
    seen = Counter[str]()
    labels = []
    for name in names:
        seen[name] += 1
        labels.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return labels


def split_home(path: Path) -> tuple[Path, str | None]:
    """Return the folder and the split that a source names."""
    folder, colon, split = path.name.rpartition(":")
    if colon and folder and not path.exists():
        return path.with_name(folder), split
    return path, None
