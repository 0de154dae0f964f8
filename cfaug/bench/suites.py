"""Which benchmarks a run is asked: the config nodes behind ``benchmark=``. No torch at import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cfaug.bench.classification import ZeroShot
from cfaug.bench.pairs import PairMatching
from cfaug.bench.retrieval import Retrieval
from cfaug.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from cfaug.data.index import Index
    from cfaug.protocols import Benchmark

TEMPLATES = "zeroshot_classification_templates.txt"


@dataclass(frozen=True)
class Subject:
    """What a suite may know of the run it tests: how to open data, and what was held out.

    ``open`` takes a folder or ``shapescapes:PART`` of the run's own world; ``has_world`` says
    whether there is one; ``held_out`` gives an index and the rows of it the run validated on.
    """

    open: Callable[[str], Index]
    has_world: bool
    held_out: Callable[[], tuple[Index, np.ndarray]]


@dataclass(frozen=True)
class ShapeScapes:
    """The embedded world's own tests: in and out of distribution, and the pair test.

    The names begin with ``shapescapes_id_`` and ``shapescapes_ood_``.
    """

    batch_size: int = 256

    def benchmarks(self, subject: Subject) -> list[Benchmark]:
        """Return five benchmarks on the tests of the run's world."""
        from cfaug.shapescapes import CLASS_NAMES, PROMPTS

        found: list[Benchmark] = []
        # Retrieval in distribution has a test of its own, in which every caption comes once.
        for part, for_retrieval in (("id", "id_retrieval"), ("ood", "ood")):
            captions = subject.open(f"shapescapes:{for_retrieval}")
            found += [
                Retrieval(f"shapescapes_{part}_retrieval", captions, batch_size=self.batch_size),
                ZeroShot(
                    f"shapescapes_{part}_classification",
                    subject.open(f"shapescapes:{part}"),
                    classes=CLASS_NAMES,
                    templates=PROMPTS,
                    batch_size=self.batch_size,
                ),
            ]
        pairs = subject.open("shapescapes:ood_pairs")
        return [*found, PairMatching("shapescapes_ood_pairs", pairs, batch_size=self.batch_size)]


@dataclass(frozen=True)
class RetrievalOn:
    """Retrieval on a source the user has: ``benchmark=retrieval benchmark.data=FOLDER``."""

    data: str | None
    name: str | None = None
    batch_size: int = 256
    captions_per_image: int | None = None

    def benchmarks(self, subject: Subject) -> list[Benchmark]:
        """Return one benchmark, named after the folder unless ``name`` says otherwise."""
        folder = _required(self.data, "retrieval")
        return [
            Retrieval(
                f"{self.name or Path(folder).name}_retrieval",
                subject.open(folder),
                batch_size=self.batch_size,
                captions_per_image=self.captions_per_image,
            )
        ]


@dataclass(frozen=True)
class ClassificationOn:
    """Zero-shot classification on an ImageFolder or CLIP_benchmark folder.

    The default template is the paper's, "A photo of a {c}" without a period (COCO-CFs, section 4);
    ``templates: folder`` takes CLIP_benchmark's zeroshot_classification_templates.txt.
    """

    data: str | None
    name: str | None = None
    templates: Sequence[str] | str = ("A photo of a {c}",)
    batch_size: int = 256

    def benchmarks(self, subject: Subject) -> list[Benchmark]:
        """Return one benchmark, named after the folder unless ``name`` says otherwise."""
        folder = _required(self.data, "classification")
        return [
            ZeroShot(
                f"{self.name or Path(folder).name}_classification",
                subject.open(folder),
                classes=None,
                templates=self._templates(Path(folder)),
                batch_size=self.batch_size,
            )
        ]

    def _templates(self, folder: Path) -> Sequence[str]:
        if self.templates != "folder":
            return (self.templates,) if isinstance(self.templates, str) else tuple(self.templates)
        for place in (folder, folder.parent):
            file = place / TEMPLATES
            if file.is_file():
                return [line for line in file.read_text().splitlines() if line.strip()]
        raise UserError(f"benchmark.templates=folder: there is no {TEMPLATES} in {folder} or above")


@dataclass(frozen=True)
class HeldOut:
    """Retrieval on the rows the run validated on: in distribution, for data without a test set."""

    batch_size: int = 256

    def benchmarks(self, subject: Subject) -> list[Benchmark]:
        """Return one benchmark, ``heldout_retrieval``."""
        index, rows = subject.held_out()
        return [Retrieval("heldout_retrieval", index, rows=rows, batch_size=self.batch_size)]


@dataclass(frozen=True)
class Auto:
    """The world's tests for a run on the world; the held-out rows for a run on your own data."""

    batch_size: int = 256

    def benchmarks(self, subject: Subject) -> list[Benchmark]:
        """Return what fits the run."""
        suite = ShapeScapes if subject.has_world else HeldOut
        return suite(self.batch_size).benchmarks(subject)


def _required(folder: str | None, kind: str) -> str:
    if folder is None:
        raise UserError(f"benchmark={kind} needs benchmark.data=FOLDER")
    return folder
