"""What do image editors keep, and do their edits succeed? ``benchmark=edit_quality``.

A photo and its edits are a set of the shards, by any recipe. Every edit is compared with its photo
outside the mask of the edit, and a judge says whether it shows the requested edit. The two are
reported against each other, since an editor that changes nothing keeps everything.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np
from PIL import Image

from cfaug.core.errors import UserError
from cfaug.core.item_schema import ItemSchema
from cfaug.core.progress import watch
from cfaug.core.protocols import DualEncoder
from cfaug.core.types import CLUSTER, ITEM, RECONSTRUCTION, Evaluation, Outcome
from cfaug.core.validation import Positive
from cfaug.evaluation.benchmark import (
    SourceBenchmark,
    WritesModelPage,
    cluster_rows,
    fingerprint,
    paired_rows,
)
from cfaug.evaluation.edit_masks import ORACLE, EditOracle, MaskFolder
from cfaug.evaluation.editor_report import (
    EDIT_ITEMS,
    EDITED,
    MEASURES,
    EditedItems,
    editor_page,
    verdicts,
)
from cfaug.evaluation.inference import Pixels, embed_images, embed_pictures, embed_texts
from cfaug.imaging.select import direction
from cfaug.report.items import Items
from cfaug.stats.image_metrics import HIGHEST_PSNR, psnr_outside, ssim_outside

if TYPE_CHECKING:
    from cfaug.core.protocols import Benchmark
    from cfaug.data.index import Index
    from cfaug.evaluation.cached_model import CachedEncoder
    from cfaug.evaluation.context import EvaluationContext
    from cfaug.report.gallery import ImageSource, ModelPage


@dataclass(frozen=True)
class EditedFolder:
    """Photos and their edits by one editor and seed.

    Attributes:
        name: the editor's name in results.
        number: the number of the folder among those of the editor.
        rows: the rows of each edit's photo and of the edit, int64 (edits, 2).
    """

    name: str
    number: int
    index: Index
    rows: np.ndarray

    def column(self, name: str) -> list[str]:
        """Return an extra column of the edits as text; empty where there is none."""
        if name not in self.index.extra_names:
            return [""] * len(self.rows)
        values = self.index.extra_values(name, self.rows[:, 1])
        return ["" if value is None else str(value) for value in values]

    def name_images(self, member: int) -> list[str]:
        """Return the names by which pages find the photos (0) or the edits (1)."""
        keys = self.index.keys(self.rows[:, member])
        return [f"{self.name}/{self.number}/{key}" for key in keys]


@dataclass
class EditorQuality(WritesModelPage, SourceBenchmark):
    """Kept content outside each edit, and its success, by editor and kind of edit.

    Args:
        data: sets of a photo and its edits, such as shards of ``recipe=photo_edits``; or several
            editors, ``{NAME: FOLDER}``, each with a list of folders for several seeds.
        name: the name in tables, ending in the kind; ``None`` takes the folder's name, or the kind
            alone for several.
        without_leaks: whether to leave out sets of photos that the run was trained on.
        masks: the source of the masks: ``oracle`` for photos of the embedded world; a folder of
            masks, white where a photo may change, named by the photo's path or the edit's key; or
            PIE-Bench's ``data``, with ``mapping_file.json``.
        judge: the judge of success: the ``model``, for which an edit should be more similar to the
            edited caption than to the photo's; or the ``oracle``, the world's own classifier of
            pictures, which should see the edited factor.
        page: number of edits that the page shows; ``None`` writes no page.
    """

    data: str | Mapping[str, str | Sequence[str]] | None = None  # type: ignore[assignment]
    masks: str = ORACLE
    judge: Literal["model", "oracle"] = "model"
    page: Positive | None = 300
    _folders: tuple[EditedFolder, ...] = field(default=(), init=False, repr=False)
    _oracle: EditOracle | None = field(default=None, init=False, repr=False)
    _masks: MaskFolder | None = field(default=None, init=False, repr=False)

    kind: ClassVar[str] = "edit_quality"
    item_schema: ClassVar[ItemSchema] = EDIT_ITEMS
    needs: ClassVar[type] = DualEncoder
    whole_sets: ClassVar[bool] = True
    primary_metrics: ClassVar[tuple[str, ...]] = ("psnr", "success")

    def sources(self) -> list[tuple[str, int, str]]:
        """Return the name of the editor, the number of the folder, and the folder, of each."""
        if not isinstance(self.data, Mapping):
            return [(EDITED, 0, self.source())]
        sources = []
        for name, folders in self.data.items():
            several = [folders] if isinstance(folders, str) else list(folders)
            sources += [(str(name), number, folder) for number, folder in enumerate(several)]
        if not sources:
            raise UserError("benchmark.data={} names no editor: give {NAME: FOLDER}")
        return sources

    def open(self, context: EvaluationContext) -> list[Benchmark]:
        sources = self.sources()
        opened = copy.copy(self)
        stem = "" if isinstance(self.data, Mapping) else Path(sources[0][2]).name.replace(":", "_")
        stem = (self.name or stem).removesuffix(f"_{self.kind}").removesuffix(self.kind)
        opened.name = f"{stem}_{self.kind}" if stem else self.kind
        if ORACLE in (self.masks, self.judge):
            if context.oracle is None:
                raise UserError(f"benchmark={self.kind} has no oracle here: evaluate.py has")
            opened._oracle = context.oracle()
        if self.masks != ORACLE:
            opened._masks = MaskFolder(Path(self.masks).expanduser())
        folders = []
        for name, number, source in sources:
            index = context.open(source)
            rows, leaks = context.apart_from_training(
                source, without_leaks=self.without_leaks, whole_sets=True
            )
            opened.leaks = leaks if opened.leaks is None else opened.leaks
            pairs = paired_rows(opened.name, index, rows).reshape(-1, 2)
            folders.append(EditedFolder(name, number, index, pairs))
        opened._folders = tuple(folders)
        return cast("list[Benchmark]", [opened])

    def prepare(self, context: EvaluationContext, index: Index, rows: np.ndarray | None) -> None:
        """Do nothing: ``open`` opens several sources."""

    @property
    def data_hash(self) -> str:
        content: list[Any] = ["" if self._oracle is None else self._oracle.describe()]
        content += [self.judge, ORACLE if self._masks is None else self._masks.hash()]
        for folder in self._folders:
            known = [n for n in ("edit_kind", "scene_seed") if n in folder.index.extra_names]
            content += [folder.name, folder.index.hash_with(known), folder.rows]
        return fingerprint(*content)

    def run(self, encoder: DualEncoder | CachedEncoder) -> Evaluation:
        """Return the means of every editor, over all its edits and by their kind.

        Reconstructions, whose captions did not change, count only as a kind of their own.
        """
        pieces = [self._measure(encoder, folder) for folder in self._folders]
        columns = {
            name: (
                np.concatenate([piece[name] for piece in pieces])
                if isinstance(pieces[0][name], np.ndarray)
                else [value for piece in pieces for value in piece[name]]
            )
            for name in pieces[0]
        }
        sets, kinds = (np.asarray(columns[name]) for name in ("set", "kind"))
        outcomes = []
        for name in dict.fromkeys(columns["set"]):
            edits = (sets == name) & (kinds != RECONSTRUCTION)
            parts = [({"set": name}, edits)]
            for kind in np.unique(kinds[sets == name]).tolist():
                parts.append(({"set": name, "kind": kind}, (sets == name) & (kinds == kind)))
            for by, rows in parts:
                for metric, measure in MEASURES.items():
                    values = np.asarray(columns.get(metric, []), np.float64)
                    values = values[rows] if len(values) else values
                    values = values[~np.isnan(values)]
                    if len(values):
                        outcomes.append(
                            Outcome(
                                str(self.name), metric, float(values.mean()), len(values),
                                measure.better, measure.unit, by,
                            )
                        )  # fmt: skip
        if not outcomes:
            raise UserError(f"{self.name}: there are no edits: name shards in which some were kept")
        return Evaluation(outcomes, columns)

    def _measure(
        self, encoder: DualEncoder | CachedEncoder, folder: EditedFolder
    ) -> dict[str, Any]:
        """Return the columns of the edits of one folder."""
        import torch

        index, rows_N2 = folder.index, folder.rows
        texts = [[index.text(int(row)) for row in rows] for rows in rows_N2.T]
        edited = np.array([before != after for before, after in zip(*texts, strict=True)], bool)
        kept: dict[str, list[float]] = {name: [] for name in ("masked", "psnr", "ssim")}
        judged: dict[str, list[float]] = {"success": [], "rest_kept": []}
        composites = []
        for at, row in enumerate(watch(rows_N2, "comparing", len(rows_N2), "edits")):
            photo, shown = (np.asarray(index.image(int(place))) for place in row)
            if photo.shape != shown.shape:
                raise UserError(
                    f"{index.image_name(int(row[1]))} has {shown.shape[1]} x {shown.shape[0]} "
                    f"pixels and its photo {photo.shape[1]} x {photo.shape[0]}: only pictures of "
                    "one size can be compared pixel by pixel"
                )
            truth, name = None, index.group_name(int(row[0]))
            if self._oracle is not None:
                captions = (texts[0][at], texts[1][at])
                truth = self._oracle.check(index.extra_row(int(row[0])), captions, photo, shown)
                judged["success"].append(np.nan if truth is None else truth.success)
                judged["rest_kept"].append(np.nan if truth is None else truth.rest_kept)
            if not edited[at]:  # nothing may change in a reconstruction
                mask = np.zeros(photo.shape[:2], np.bool_)
            elif self._masks is not None:
                mask = self._masks.find(name, index.key(int(row[1])), photo.shape[:2])
            elif truth is not None:
                mask = truth.mask
            else:  # captions that the world does not know: no pixel is known to be kept
                mask = np.ones(photo.shape[:2], np.bool_)
            kept["masked"].append(float(mask.mean()))
            kept["psnr"].append(min(psnr_outside(shown, photo, mask), HIGHEST_PSNR))
            kept["ssim"].append(ssim_outside(shown, photo, mask))
            composite = np.where(mask[..., None], photo, shown)
            composites.append(encoder.transform(Image.fromarray(composite)))
        photos, shown_ND = (
            embed_images(encoder, Pixels(index, rows), self.batch_size) for rows in rows_N2.T
        )
        before, after = (embed_texts(encoder, text, self.batch_size) for text in texts)
        composite_ND = embed_pictures(encoder, composites, self.batch_size)
        feature_distance = np.maximum(0, 1 - _cosine(composite_ND, photos))
        feature_distance[np.array(kept["masked"]) == 1] = np.nan
        match, other = _cosine(shown_ND, after), _cosine(shown_ND, before)
        numbers = {**kept, "feature_distance": feature_distance, "text_similarity": match}
        # The change of the picture and of the caption, which may be none.
        cosines, undefined = direction(*map(torch.from_numpy, (photos, shown_ND, before, after)))
        known = edited & ~undefined.numpy()
        numbers["direction"] = np.where(known, cosines.numpy().astype(np.float64), np.nan)
        by_model = np.where(match == other, 0.5, match > other)
        success = judged["success"] if self.judge == ORACLE else by_model
        numbers["success"] = np.where(edited, success, np.nan)
        if self.judge == ORACLE:
            numbers["rest_kept"] = judged["rest_kept"]
        kinds = [kind or "edit" for kind in folder.column("edit_kind")]
        return {
            ITEM: folder.name_images(1),
            CLUSTER: cluster_rows(index, rows_N2[:, 0]),
            "set": [folder.name] * len(rows_N2),
            "folder": np.full(len(rows_N2), folder.number),
            "photo": folder.name_images(0),
            "kind": [k if e else RECONSTRUCTION for k, e in zip(kinds, edited, strict=True)],
            "before": folder.column("edit_before"),
            "after": folder.column("edit_after"),
            "text_before": texts[0],
            "text": texts[1],
            **{name: np.array(values, np.float64) for name, values in numbers.items()},
        }

    def summarise(self, evaluation: Evaluation) -> list[str]:
        return verdicts(EditedItems("", Items(str(self.name), "", "", evaluation.items)))

    def model_page(self) -> ModelPage[EditedItems]:
        """Return how to make the page of edits in the order of their trade-off."""
        return editor_page(int(self.page or 1))

    def page_images(self) -> ImageSource:
        """Return the photos and edits by their names in the items."""
        from cfaug.report.gallery import ImageSource

        places = {
            name: (folder.index, int(row))
            for folder in self._folders
            for member in (0, 1)
            for name, row in zip(folder.name_images(member), folder.rows[:, member], strict=True)
        }
        find = self.reader(places.get, self.data)

        def read(name: str) -> bytes:
            index, row = find(name)
            return index.read_image(row)

        return ImageSource(read)


def _cosine(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosines of corresponding rows of unit vectors, float64 (rows,)."""
    return np.asarray(np.einsum("nd,nd->n", first, second, dtype=np.float64))
