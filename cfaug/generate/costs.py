"""What a generation would cost: operations of the models, hours of a GPU, bytes; for dry runs.

The models' operations are counted from their configurations (``cfaug.imaging.flops``), their calls
from the plan by which shards are drawn. What cannot be counted is named, and never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cfaug.core.types import Edit, ImageJob, Proposal
from cfaug.data.shards import shards as edits
from cfaug.generate.image_server import ImageServer
from cfaug.generate.recipe import ImageFormat, Pipeline, ShardPlan, shard_count
from cfaug.generate.sampling import Draws
from cfaug.imaging.clip import LabelScorer, LazyClipScorer
from cfaug.imaging.flops import (
    DiffusionOperations,
    UncountedError,
    count_diffusion,
    count_encoder,
    count_pipeline,
    count_shared,
)
from cfaug.imaging.instructed_photos import InstructedPhotos
from cfaug.imaging.photo_editing import InvertAndEdit
from cfaug.imaging.prompt_to_prompt import PromptToPrompt
from cfaug.imaging.shared_pipeline import SharedPipeline
from cfaug.imaging.tree import plan, plan_edits
from cfaug.models.specs import HFClip
from cfaug.report.document import Part, make_part, text_column

if TYPE_CHECKING:
    from cfaug.generate.job import Job

EFFICIENCY = 0.3
"""Assumed share of a GPU's peak that the models reach, as ``train.py dry_run=true`` assumes about a
third for a processor. It was not measured on these GPUs: ``benchmarks/generation.py --device cuda``
does that."""


@dataclass(frozen=True)
class Gpu:
    """Published dense peaks of a GPU in TFLOP/s, and its memory in GB.

    Attributes:
        bf16: the peak of the tensor cores, also for fp16.
        fp32: the peak of the other cores.
    """

    bf16: float
    fp32: float
    memory: float

    def seconds(self, work: Sequence[Work]) -> float:
        """Return the estimated seconds of some work."""
        peaks = {"bf16": self.bf16, "fp16": self.bf16, "fp32": self.fp32}
        return sum(part.total / (peaks[part.precision] * 1e12 * EFFICIENCY) for part in work)


GPUS = {
    "A100": Gpu(312, 19.5, 80),
    "H100": Gpu(989, 67, 80),
    "H200": Gpu(989, 67, 141),
    "L40S": Gpu(362, 91.6, 48),
}
"""NVIDIA's data sheets of A100 80 GB SXM, H100 SXM, H200 SXM and L40S; tensor cores without
sparsity."""
SAMPLE = 4
"""Examples whose plan is counted; the others are taken to cost the same."""
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
BYTES_PER_PIXEL: Mapping[ImageFormat, float] = {"png": 1.4, "webp": 1.1, "jpeg": 0.45}
"""Means of five colour photographs of scikit-image's data (astronaut, coffee, chelsea, rocket,
stereo_motorcycle) at 512 x 512, encoded as in shards. As PNG they are from 0.8 to 1.7; noise is 3.
"""


@dataclass(frozen=True)
class Work:
    """Equal calls of one part of the models."""

    part: str
    calls: float
    operations: int
    precision: str

    @property
    def total(self) -> float:
        """The operations of all calls."""
        return self.calls * self.operations


@dataclass
class Cost:
    """What the sets of a plan cost.

    Attributes:
        sets: the number of proposals.
        members: the number of their texts.
        side: the side of an image in pixels; ``None`` for images of the source.
        weights: bytes of all weights.
        missing: the parts that are not counted, with the reason.
    """

    sets: float
    members: float
    side: int | None = None
    images: float = 0.0
    weights: float = 0.0
    work: list[Work] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def add(self, part: str, calls: float, operations: int, precision: str) -> None:
        """Count calls of a part."""
        if calls:
            self.work.append(Work(part, calls, operations, precision))

    @property
    def total(self) -> float:
        """The operations that are counted."""
        return sum(part.total for part in self.work)

    def scaled(self, factor: float) -> Cost:
        """Return the cost of so many times as many sets."""
        work = [replace(part, calls=part.calls * factor) for part in self.work]
        sizes = (self.sets * factor, self.members * factor)
        return replace(
            self, sets=sizes[0], members=sizes[1], images=self.images * factor, work=work
        )


def count_cost(pipeline: Pipeline, plan_of: ShardPlan) -> Cost:
    """Count what the images of some sets cost, at most: early rejections save scoring.

    Args:
        plan_of: the plan of a shard of these sets. Rounds after the first are counted as if their
            p were drawn like those of the first.
    """
    sets, draws, editor = plan_of.sets, plan_of.draws, pipeline.editor
    cost = Cost(len(sets), sum(len(proposal.texts) for proposal in sets))
    if isinstance(draws, Draws):  # how many depends on the number of candidates alone
        plan_of = replace(plan_of, draws=replace(draws, p_law="uniform"))
    batches = [
        [ImageJob(sets[piece.place], draw) for piece in batch for draw in piece.draws]
        for batch in plan_of.batches()
    ]
    if not getattr(editor, "uses_models", True):
        cost.side = getattr(editor, "image_size", None)
        cost.images = sum(len(job.texts) for jobs in batches for job in jobs)
    else:
        try:
            if isinstance(editor, PromptToPrompt | SharedPipeline):
                _count_sets(cost, editor, batches, 0 if draws is None else draws.rounds)
            elif isinstance(editor, InvertAndEdit):
                _count_edits(cost, editor, batches)
            elif isinstance(editor, InstructedPhotos):
                _count_instructed(cost, editor, batches)
            elif isinstance(editor, ImageServer):
                raise UncountedError(f"the server at {editor.base_url} makes them")
            else:
                raise UncountedError(f"there is no count for a {type(editor).__name__}")
        except UncountedError as error:
            cost.missing.append(f"images: {error}")
    for name, scorer in {**pipeline.scorers, **pipeline.report}.items():
        if not getattr(scorer, "uses_models", True):
            continue
        encoder = scorer.encoder if isinstance(scorer, LabelScorer) else scorer
        try:
            if not isinstance(encoder, LazyClipScorer) or not isinstance(encoder.model, HFClip):
                raise UncountedError(f"{type(encoder).__name__} does not say what it takes")
            clip = count_encoder(encoder.model.weights, encoder.model.revision)
        except UncountedError as error:
            cost.missing.append(f"scores ({name}): {error}")
            continue
        cost.add(f"score {name}", cost.images, clip.image, "fp32")
        cost.add(f"score {name}, texts", cost.members, clip.text, "fp32")
        cost.weights += 4 * clip.weights
    return cost


def _count_model(
    cost: Cost, editor: PromptToPrompt | InvertAndEdit | SharedPipeline
) -> tuple[DiffusionOperations, str]:
    """Count a diffusion model's parts; return what they take and its number format."""
    dtype = editor.model.dtype
    if dtype not in BYTES:
        raise UncountedError(f"hours with dtype={dtype} are unknown")
    if isinstance(editor, SharedPipeline):
        counted = count_shared(editor)
    else:
        counted = count_diffusion(editor.model)
    cost.side = counted.side
    cost.weights += counted.weights * BYTES[dtype]
    return counted, dtype


def _count_sets(
    cost: Cost,
    editor: PromptToPrompt | SharedPipeline,
    batches: Sequence[Sequence[ImageJob]],
    rounds: int,
) -> None:
    """Count sets from noise: a guided latent is two rows of the network at each step."""
    model, precision = _count_model(cost, editor)
    rows = looks = 0
    bounds = [editor.steps * i // (rounds + 1) for i in range(rounds + 2)]
    for jobs in batches:
        left = list(jobs)
        for first, last in pairwise(bounds):
            tree = plan(left, editor.steps, editor.mode, guides=model.guides)
            latents = sum(len(tree.active(step)) for step in range(first, last))
            rows += latents * (1 + model.guides)
            if last == editor.steps:
                cost.images += len(tree)
            else:  # halved by predictions of all images
                looks += sum(len(job.texts) for job in left)
                of_set: dict[str, list[ImageJob]] = {}
                for job in left:
                    of_set.setdefault(job.proposal.key, []).append(job)
                left = [job for some in of_set.values() for job in some[: -(-len(some) // 2)]]
    cost.images += looks
    if getattr(editor, "safety", None) is not None:
        cost.missing.append("the safety checker")
    cost.add("text encoder", cost.members, model.text, precision)
    cost.add(
        "UNet" if isinstance(editor, PromptToPrompt) else "network", rows, model.row, precision
    )
    cost.add("decoder", cost.images, model.decode, precision)


def _count_edits(cost: Cost, editor: InvertAndEdit, batches: Sequence[Sequence[ImageJob]]) -> None:
    """Count edits of photos: inversions, the sources and the edits; all that is shared once."""
    from cfaug.imaging.inversion import DirectInversion, EditFriendly, NullText

    model, precision = _count_model(cost, editor)
    if editor.safety is not None:
        cost.missing.append("the safety checker")
    taken = editor.steps - editor.inversion.skip(editor.steps)
    remembers = editor.remember and editor.inversion.remembers
    shares = editor.cross.steps if editor.cross is not None else 0.0
    controlled = taken if isinstance(shares, Mapping) else min(taken, int(shares * (taken + 1)))
    # Rows of the UNet to invert a photo, and those with a gradient, at most.
    inversion, steps, optimising = editor.inversion, editor.steps, 0
    if isinstance(inversion, DirectInversion):
        inverting = steps + remembers
    elif isinstance(inversion, EditFriendly):
        inverting = taken * (1 if inversion.guidance == 1 else 2)
    elif isinstance(inversion, NullText):  # the way to noise, and two rows of every step back
        inverting, optimising = 3 * steps, steps * inversion.inner_steps
    else:
        raise UncountedError(f"{type(inversion).__name__} does not say what it takes")
    rows = gradients = photos = 0
    for jobs in batches:
        if any(job.image is None for job in jobs):
            raise UncountedError("the examples have no photos")
        tree = plan_edits(
            jobs, taken, by_guidance=editor.inversion.depends_on_guidance, remembered=remembers,
            controlled=lambda _: controlled,
        )  # fmt: skip
        sources = len(tree.sources)
        rows += tree.row_steps() + sources * inverting
        gradients += sources * optimising
        photos += len({source.digest for source in tree.sources})
        # The first image of a job is the photo; scorers embed it as well.
        cost.images += len({latent for places in tree.jobs for latent in places[1:]})
    cost.add("text encoder", cost.members, model.text, precision)
    cost.add("encoder", photos, model.encode, precision)
    cost.add("UNet", rows, model.row, precision)
    cost.add("UNet with gradient, at most", gradients, model.gradient, precision)
    cost.add("decoder", cost.images, model.decode, precision)
    cost.images += photos


def _count_instructed(
    cost: Cost, editor: InstructedPhotos, batches: Sequence[Sequence[ImageJob]]
) -> None:
    """Count a pipeline's images: one for each text, but for a photo."""
    jobs = [job for batch in batches for job in batch]
    if editor.model.dtype not in BYTES:
        raise UncountedError(f"hours with dtype={editor.model.dtype} are unknown")
    drawn = [job for job in jobs if job.image is None]
    made = count_pipeline(editor, jobs[0].draw, from_texts=bool(drawn))
    cost.missing += made.missing
    cost.side = editor.side
    cost.images = sum(len(job.texts) for job in jobs)
    cost.weights += made.weights * BYTES[editor.model.dtype]
    edits = sum(len(job.texts) - 1 for job in jobs)
    cost.add("pipeline, from a text", len(drawn), made.image, editor.model.dtype)
    cost.add("pipeline, an edit", edits, made.edit, editor.model.dtype)


def estimate(job: Job, examples: int) -> tuple[Cost, str]:
    """Return the cost of a job's images, with what is assumed of its captions.

    Args:
        examples: the number of examples, of all parts.
    """
    shards = range(shard_count(examples, job.shards.sets_per_shard))
    commits = [edits.read_caption_commit(job.folder, number) for number in shards]
    edited = [
        (number, commit) for number, commit in enumerate(commits) if commit and commit["sets"]
    ]
    if edited and None not in commits:
        sets = sum(commit["sets"] for _, commit in edited)
        known, basis = edits.read_proposals(job.folder, edited[0][0]), "counted in its captions"
        first = list(dict.fromkeys(proposal.example.key for proposal in known))[:SAMPLE]
        sample = [proposal for proposal in known if proposal.example.key in first]
    elif getattr(job.recipe.editor, "takes_grids", False):
        sets, basis = examples, "one of each grid"
        edited_grids = job.editor.edit(job.examples[:SAMPLE])
        sample = [proposal for grid in edited_grids for proposal in grid.proposals]
    else:
        sets, basis = examples, "assumed: one edit of each example, as no captions are edited yet"
        edit = Edit("noun", "before", "after")
        sample = [
            Proposal(example, (example.text if example.texts else "before", "after"), (None, edit))
            for example in job.examples[:SAMPLE]
        ]
    return count_cost(job.pipeline, job.plan_batches(sample)).scaled(sets / len(sample)), basis


def disk_bytes(cost: Cost, job: Job) -> float | None:
    """Return the bytes of the images that are kept, at most; ``None`` if their size is unknown."""
    if cost.side is None:
        return None
    pixels = cost.members * job.recipe.selection.keep * cost.side**2
    return pixels * BYTES_PER_PIXEL[job.shards.image_format]


def describe_cost(cost: Cost, job: Job, basis: str) -> dict[str, Any]:
    """Return a cost as JSON."""
    disk = disk_bytes(cost, job)
    return {
        "sets_at_most": round(cost.sets),
        "sets_from": basis,
        "flop": cost.total,
        "hours": {name: round(gpu.seconds(cost.work) / 3600, 4) for name, gpu in GPUS.items()},
        "efficiency": EFFICIENCY,
        "weights_bytes": round(cost.weights),
        "disk_bytes_at_most": None if disk is None else round(disk),
        "not_counted": cost.missing,
    }


def cost_parts(cost: Cost, job: Job, basis: str) -> list[Part]:
    """Return the tables of a cost: the work of each part, and the hours of each GPU."""
    disk = disk_bytes(cost, job)
    files = "the source's own" if disk is None else f"{_in_units(disk)}B at most"
    work = make_part(
        "Work",
        ("part", "format"),
        [
            text_column("calls", lambda row: f"{row.calls:,.0f}"),
            text_column("a call", lambda row: f"{_in_units(row.operations)}FLOP"),
            text_column("all", lambda row: f"{_in_units(row.total)}FLOP"),
        ],
        [((row.part, row.precision), row) for row in cost.work],
        [
            f"{cost.sets:,.0f} sets ({basis}), {cost.images:,.0f} images with all candidates; "
            f"images on disk: {files}",
            *(f"not counted: {reason}" for reason in cost.missing),
        ],
    )
    gpus = make_part(
        "One GPU, without what is not counted" if cost.missing else "One GPU",
        ("GPU",),
        [
            text_column("peak bf16", lambda gpu: f"{gpu.bf16:g} TFLOP/s"),
            text_column("peak fp32", lambda gpu: f"{gpu.fp32:g} TFLOP/s"),
            text_column("hours", lambda gpu: _in_hours(gpu.seconds(cost.work))),
            text_column("memory", lambda gpu: f"{gpu.memory:g} GB"),
            text_column("weights", lambda _: f"{_in_units(cost.weights)}B"),
        ],
        [((name,), gpu) for name, gpu in GPUS.items()] if cost.work else [],
        [
            "hours = FLOP / (peak x efficiency) / 3600; fp32 at the peak without tensor cores; "
            f"efficiency {EFFICIENCY} is assumed, not measured"
        ],
    )
    return [work, gpus] if cost.work else [work]


def _in_hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.2f}" if hours >= 1 else f"{hours:.2g}"


def _in_units(number: float) -> str:
    """Return a number with three digits and its prefix.

    >>> _in_units(803_273_441_280), _in_units(0)
    ('803 G', '0 ')
    """
    for exponent, prefix in enumerate(("", "k", "M", "G", "T", "P", "E", "Z")):
        if number < 999.5 * 1000**exponent or prefix == "Z":
            return f"{number / 1000**exponent:.3g} {prefix}"
    raise AssertionError
