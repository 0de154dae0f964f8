"""The hot paths of the tool on the audited device, and what each may make the host wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy

from cfaug.core.answers import Question
from cfaug.core.protocols import Answerer, Classifier, DualEncoder, Matcher
from cfaug.core.types import Draw
from cfaug.data.index import open_index
from cfaug.data.shards.shards import write_shards
from cfaug.evaluation import inference
from cfaug.imaging.clip import ClipScorer
from cfaug.imaging.cross_attention import CrossAttention
from cfaug.imaging.inversion import DirectInversion, EditFriendly, NullText
from cfaug.imaging.model import DiffusionWeights
from cfaug.imaging.prompt_to_prompt import PromptToPrompt
from cfaug.models import specs
from cfaug.models.task_specs import ImageClassification
from cfaug.train.first_fault import FirstFault
from cfaug.train.module import TrainingModule
from cfaug.train.settings import ClassLoss, LossSettings, TrainerSettings
from tests.device_audit import CUDA, Counts, DeviceAudit
from tests.imaging import (
    test_instructed_photos,
    test_photo_editing,
    test_shared_pipeline,
    test_sharing,
    tiny_pipelines,
)
from tests.imaging import tiny as tiny_diffusion
from tests.models import tiny, tiny_vlm
from tests.train import (
    test_classification,
    test_entailment,
    test_language,
    test_questions,
    tiny_language,
    tiny_plan,
)
from tests.train.tasks import run_task

Measured = list[Counts]
"""What equal stretches of a path did: steps, denoising steps, or batches; the last are steady."""


@dataclass(frozen=True)
class HotPath:
    """A path of the tool.

    Attributes:
        unit: the stretch that is measured.
        run: a function of an empty folder and the audited device.
        waits: the largest number of waits in a stretch that the tool's own lines ask for.
        library: the largest number of those that a library below it asks for.
        reason: the reason for both.
        slow: whether it takes seconds.
    """

    unit: str
    run: Callable[[Path, DeviceAudit], Measured]
    waits: int = 0
    library: int = 0
    reason: str = ""
    slow: bool = True


# Training, by Lightning's own loop.


class _EnoughError(Exception):
    """The end of a training of which enough was seen."""


class _AuditedStrategy(SingleDeviceStrategy):
    """The strategy of one device, which notes what was counted from one update to the next."""

    def __init__(self, audit: DeviceAudit) -> None:
        super().__init__(CUDA)
        self.audit = audit
        self.steps: Measured = []

    def setup_environment(self) -> None:
        """Choose no device: there is none."""

    def optimizer_step(self, *args: Any, **kwargs: Any) -> Any:
        result = super().optimizer_step(*args, **kwargs)
        self.steps.append(self.audit.measure())
        if len(self.steps) == STEPS:
            raise _EnoughError
        return result


STEPS = 2
"""The updates of a training: the second is like all later ones."""


def fit(audit: DeviceAudit, train: Callable[[dict[str, Any]], Any], **settings: Any) -> Measured:
    """Train, and return the counts of each step; ``train`` takes the settings of a trainer."""
    strategy = _AuditedStrategy(audit)
    given = {
        "max_steps": STEPS + 1, "progress": False, "accelerator": "cpu", "log_every_steps": 100,
        "val_every_steps": 100, "save_every_minutes": None, "checkpoint": "last",
        "strategy": lambda: strategy, **settings,
    }  # fmt: skip
    read = FirstFault.read

    def read_and_go_on(fault: FirstFault) -> None:
        read(fault)  # the device has no numbers

    with (
        suppress(_EnoughError),
        patch("cfaug.train.engine.device_of", return_value="cuda"),
        patch.object(FirstFault, "read", read_and_go_on),
    ):
        train(given)
    return strategy.steps[1:]


def train_pairs(
    folder: Path,
    audit: DeviceAudit,
    save: Callable[[Path], Path] = tiny.save_clip,
    spec: Any = specs.HFClip,
    *,
    loss: LossSettings | None = None,
    wrong_images: bool = False,
    **settings: Any,
) -> Measured:
    """Train a dual encoder on pairs."""
    weights = save(folder / "weights")

    def train(given: dict[str, Any]) -> None:
        given["steps"] = given.pop("max_steps")
        tiny_plan.train(
            folder / "run", weights, spec=spec, loss=loss, wrong_images=wrong_images, **given
        )

    return fit(audit, train, **settings)


def load_open_clip(folder: str) -> specs.OpenClip:
    """Return the specification of a folder that open_clip saved."""
    return specs.OpenClip(str(folder))


def validate_pairs(folder: Path, audit: DeviceAudit, **settings: Any) -> Measured:
    """Validate a dual encoder, and return the counts of each batch."""
    batches: Measured = []
    validate = TrainingModule.validation_loss

    def noted(module: TrainingModule, every: Iterable[Any]) -> float:
        def each() -> Iterator[Any]:
            for batch in every:
                audit.measure()
                yield batch
                batches.append(audit.measure())

        return validate(module, each())

    with patch.object(TrainingModule, "validation_loss", noted):
        train_pairs(folder, audit, val_every_steps=1, **settings)
    return batches


def _open_photos(folder: Path, photos: Callable[..., Any]) -> tuple[Any, Any]:
    write_shards(photos("real", 24), folder / "real")
    write_shards(photos("edited", 12, edited=True), folder / "edited")
    real, edited = (open_index(str(folder / name), folder) for name in ("real", "edited"))
    return real, edited


def train_classifier(
    folder: Path, audit: DeviceAudit, loss: ClassLoss | None = None, **settings: Any
) -> Measured:
    """Train a classifier of images."""
    tiny.save_classifier(folder / "vit")
    indexes = _open_photos(folder, test_classification.photos)

    def train(given: dict[str, Any]) -> None:
        trainer = TrainerSettings(**given)
        task = test_classification.task(folder, indexes, trainer=trainer, loss=loss)
        run_task(task, folder / "run")

    return fit(audit, train, **settings)


def train_entailer(folder: Path, audit: DeviceAudit) -> Measured:
    """Train an entailer."""
    tiny.save_vilt(folder / "vilt")
    indexes = _open_photos(folder, test_entailment.hypotheses)

    def train(given: dict[str, Any]) -> None:
        task = test_entailment.task(folder, indexes, trainer=TrainerSettings(**given))
        run_task(task, folder / "run")

    return fit(audit, train)


def train_answerer(
    folder: Path, audit: DeviceAudit, kind: str = "llava", contrast: float = 0.0, **settings: Any
) -> Measured:
    """Tune a vision-language model on questions."""
    getattr(tiny_vlm, f"save_{kind}")(folder / kind)

    def train(given: dict[str, Any]) -> None:
        trainer = TrainerSettings(**given)
        task = test_questions.task(folder, kind=kind, trainer=trainer, contrast=contrast)
        run_task(task, folder / "run")

    return fit(audit, train, **settings)


def train_language_model(
    folder: Path, audit: DeviceAudit, save: Callable[[Path], Path]
) -> Measured:
    """Tune a language model on edited captions."""
    weights = save(folder / "weights")

    def train(given: dict[str, Any]) -> None:
        run_task(test_language.task(weights, trainer=TrainerSettings(**given)), folder / "run")

    return fit(audit, train)


# Image editors: what is counted between two calls of the network.


def between_calls(audit: DeviceAudit, network: Any, draw: Callable[[], Any]) -> Measured:
    """Draw, and return the counts from each call of the network to the next."""
    calls: Measured = []
    hook = network.register_forward_pre_hook(lambda *_: calls.append(audit.measure()))
    draw()
    hook.remove()
    return calls[1:]


@contextmanager
def _drawing_there() -> Iterator[None]:
    with patch("cfaug.imaging.model.choose_device", return_value=CUDA):
        yield


def draw_sets(
    folder: Path, audit: DeviceAudit, shares: Sequence[float] = (0.5, 0.8), **settings: Any
) -> Measured:
    """Draw a pair by prompt-to-prompt for each share of the steps with shared attention."""
    weights = tiny_diffusion.save_pipeline(folder / "sd")
    editor = PromptToPrompt(DiffusionWeights(str(weights), device="cpu"), steps=3, **settings)
    with _drawing_there():
        jobs = [test_sharing.job(p=share) for share in shares]
        return between_calls(audit, editor._diffusion.unet, lambda: editor.sample(jobs))


def edit_photos(folder: Path, audit: DeviceAudit, **settings: Any) -> Measured:
    """Invert a photo and edit it."""
    weights = tiny_diffusion.save_pipeline(folder / "sd")
    editor = test_photo_editing.editor(weights, "fp32", **{"steps": 3, **settings})
    job = test_photo_editing.job(test_photo_editing.photo(1))
    with _drawing_there():
        return between_calls(audit, editor._diffusion.unet, lambda: editor.edit([job]))


def draw_by_pipeline(folder: Path, audit: DeviceAudit, family: str) -> Measured:
    """Draw a set with shared attention in a pipeline of diffusers."""
    build = partial(test_shared_pipeline.sharpened, test_shared_pipeline.BUILDS[family])
    weights = tiny_pipelines.save(build, folder / family)
    editor = test_shared_pipeline.editor(weights, family, steps=3)
    job = test_shared_pipeline.job(cfg=test_shared_pipeline.guidance(family))
    with _drawing_there():
        return between_calls(audit, editor._loaded.network, lambda: editor.sample([job]))


def instruct(folder: Path, audit: DeviceAudit, family: str) -> Measured:
    """Edit a photo by an instruction, with a pipeline of diffusers."""
    weights = tiny_pipelines.save(getattr(tiny_pipelines, family), folder / family)
    known = test_instructed_photos.FAMILIES[family].get("settings", test_instructed_photos.TWO)
    editor = test_instructed_photos.editor(
        weights, family, settings={**known, "num_inference_steps": 4}
    )
    draw = Draw(5, 0.0, 1.0 if editor.guidance is None else 3.0)
    job = test_instructed_photos.job(test_instructed_photos.photo(), draw=draw)
    with _drawing_there():
        pipeline = editor._pipeline
        network = getattr(pipeline, "unet", None) or pipeline.transformer
        return between_calls(audit, network, lambda: editor.edit([job]))


# Evaluation: what is counted for each batch.


def each_batch(audit: DeviceAudit, batches: Iterable[Any]) -> Measured:
    """Return the counts of each of the batches that an iterator computes."""
    audit.measure()
    return [audit.measure() for _ in batches]


def embed_images(folder: Path, audit: DeviceAudit) -> Measured:
    """Embed images."""
    encoder = specs.HFClip(str(tiny.save_clip(folder / "clip"))).load(DualEncoder).to("cuda")
    batches = (tiny.pixels(4).numpy() for _ in range(3))
    encode = lambda batch: encoder.encode_image(torch.from_numpy(batch))  # noqa: E731
    return each_batch(audit, inference._embed(encoder, encode, batches, str))


def embed_texts(folder: Path, audit: DeviceAudit) -> Measured:
    """Embed texts."""
    encoder = specs.HFClip(str(tiny.save_clip(folder / "clip"))).load(DualEncoder).to("cuda")
    encode = lambda batch: encoder.encode_text(encoder.tokenize(batch))  # noqa: E731
    return each_batch(audit, inference._embed(encoder, encode, [tiny.CAPTIONS] * 3, str))


def match(folder: Path, audit: DeviceAudit) -> Measured:
    """Score pairs of an image and a caption."""
    matcher = specs.HFClip(str(tiny.save_clip(folder / "clip"))).load(Matcher).to("cuda")
    real, _ = _open_photos(folder, test_classification.photos)
    pairs = inference.PairsToScore("pairs", real, np.arange(12), tiny.CAPTIONS[:1] * 12)
    return each_batch(audit, inference._score_batches(matcher, pairs, 4))


def classify(folder: Path, audit: DeviceAudit) -> Measured:
    """Classify images."""
    model = ImageClassification(str(tiny.save_classifier(folder / "vit"))).load(Classifier)
    real, _ = _open_photos(folder, test_classification.photos)
    pixels = inference.Pixels(real, np.arange(12))
    return each_batch(audit, inference._logit_batches(model.to("cuda"), pixels, 4))


def score_images(folder: Path, audit: DeviceAudit) -> Measured:
    """Score drawn images by CLIP, which leaves the embeddings on the device."""
    encoder = specs.HFClip(str(tiny.save_clip(folder / "clip"))).load(DualEncoder).to("cuda")
    scorer = ClipScorer(encoder)
    images = torch.ones((4, 3, 40, 40), device="cuda")
    return each_batch(audit, (scorer.images(images) for _ in range(3)))


def answer(folder: Path, audit: DeviceAudit, kind: str) -> Measured:
    """Answer questions about images; the first batch checks the model, too."""
    getattr(tiny_vlm, f"save_{kind}")(folder / kind)
    model = test_questions.spec(folder, kind).load(Answerer).to("cuda")
    image = tiny.image()
    questions = [Question(f"What colour {n}?", ("red", "dark blue")) for n in ("it", "he")]
    return each_batch(audit, (model.answer([image], [questions]) for _ in range(3)))[1:]


MASK = "transformers asks whether a mask is full"
CACHE = "transformers makes empty caches on the host"
PATHS: dict[str, HotPath] = {
    "train CLIP": HotPath("step", train_pairs, library=1, reason=MASK, slow=False),
    "train SigLIP": HotPath("step", partial(train_pairs, save=tiny.save_siglip)),
    "train open_clip": HotPath(
        "step", partial(train_pairs, save=tiny.save_open_clip, spec=load_open_clip)
    ),
    "train BridgeTower": HotPath(
        "step", partial(train_pairs, save=tiny.save_bridgetower, spec=specs.BridgeTower),
        library=1, reason=MASK,
    ),
    "train FLAVA": HotPath(
        "step", partial(train_pairs, save=tiny.save_flava), library=1, reason=MASK
    ),
    "train CLIP in micro batches": HotPath(
        "step", partial(train_pairs, micro_batch_size=8), library=4, reason=f"{MASK}, in each pass"
    ),
    "train CLIP, two batches a step": HotPath(
        "step", partial(train_pairs, accumulate_grad_batches=2), library=2, reason=MASK
    ),
    "train CLIP and average": HotPath(
        "step", partial(train_pairs, ema_decay=0.9), library=1, reason=MASK
    ),
    "train CLIP with negatives": HotPath(
        "step",
        partial(
            train_pairs, wrong_images=True,
            loss=LossSettings(
                same_image="masked", hard_negative_weight=2.0, negative_captions="used",
                negative_weight=2.0,
            ),
        ),
        library=2, reason=MASK,
    ),
    "train CLIP with set invariance": HotPath(
        "step", partial(train_pairs, loss=LossSettings(set_invariance=1.0)),
        library=2, reason=MASK,
    ),
    "train CLIP, a row of the log each step": HotPath(
        "step", partial(train_pairs, log_every_steps=1), 3, 1,
        "the log has the loss and the logit scale, if all was finite",
    ),
    "validate CLIP": HotPath("batch", validate_pairs, 1, 1, "the host adds up the losses"),
    "train a classifier": HotPath("step", train_classifier),
    "train a classifier on augmented images": HotPath(
        "step",
        partial(train_classifier, loss=ClassLoss(augment=("flip", "randaugment", "cutmix"))),
        0, 8, "torchvision's RandAugment makes each image's transform on the host",
    ),
    "train an entailer (ViLT)": HotPath(
        "step", train_entailer, library=678, reason="transformers takes ViLT's patches one by one"
    ),
    "tune LLaVA on questions": HotPath(
        "step", train_answerer, library=2, reason="transformers counts the places of images"
    ),
    "tune BLIP-2 on questions": HotPath(
        "step", partial(train_answerer, kind="blip_2_t5", contrast=0.5), library=3, reason=MASK
    ),
    "tune a language model (GPT-2)": HotPath(
        "step", partial(train_language_model, save=tiny_language.save_gpt2),
        library=1, reason=MASK,
    ),
    "tune a language model (Llama)": HotPath(
        "step", partial(train_language_model, save=tiny_language.save_llama),
        library=1, reason=MASK,
    ),
    "prompt-to-prompt": HotPath("call", draw_sets, slow=False),
    "prompt-to-prompt, cross-attention": HotPath(
        "call", partial(draw_sets, cross=CrossAttention(kind="replace"))
    ),
    "direct inversion and edit": HotPath("call", partial(edit_photos, inversion=DirectInversion())),
    "edit-friendly inversion and edit": HotPath(
        "call", partial(edit_photos, inversion=EditFriendly())
    ),
    "null-text inversion and edit": HotPath(
        "call", partial(edit_photos, inversion=NullText(inner_steps=2), steps=2), 1, 0,
        "each photo stops at an update of its own",
    ),
    **{
        f"shared attention, {family}": HotPath("call", partial(draw_by_pipeline, family=family))
        for family in ("sdxl", "sd3", "klein_base", "klein_dev")
    },
    "instructed edits, SDXL": HotPath("call", partial(instruct, family="sdxl")),
    "instructed edits, FLUX Kontext": HotPath("call", partial(instruct, family="kontext")),
    "embed images": HotPath("batch", embed_images, 1, 0, "embeddings go to NumPy", slow=False),
    "embed texts": HotPath("batch", embed_texts, 1, 1, f"embeddings go to NumPy; {MASK}"),
    "match pairs": HotPath("batch", match, 1, 1, f"scores go to NumPy; {MASK}"),
    "classify images": HotPath("batch", classify, 1, 0, "logits go to NumPy"),
    "score images by CLIP": HotPath("batch", score_images),
    "answer questions (LLaVA)": HotPath(
        "batch", partial(answer, kind="llava"), 1, 14, f"likelihoods become numbers; {CACHE}"
    ),
    "answer questions (BLIP-2)": HotPath(
        "batch", partial(answer, kind="blip_2_t5"), 1, 20, f"likelihoods become numbers; {CACHE}"
    ),
}  # fmt: skip
"""The hot paths by name."""
