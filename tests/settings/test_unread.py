"""A typed setting that nothing reads is refused, with what would read it; a read one is not."""

from __future__ import annotations

from importlib import import_module
from typing import is_typeddict

import pytest

import cfaug
from cfaug.core.annotations import signature_of
from cfaug.core.errors import UserError
from cfaug.core.protocols import Answerer, DualEncoder, Matcher
from cfaug.evaluation.choices.pairs import PairMatching
from cfaug.evaluation.retrieval import Retrieval
from cfaug.run.list_settings import list_parts
from cfaug.settings.read_if import LEARNT, MODEL, TRAINED, WORLD, declared_by
from cfaug.settings.settings_files import settings_folders
from cfaug.settings.unread import place_of, refuse_unread_by_runs
from cfaug.settings.usage import describe_readers
from tests.run.conftest import COMMANDS, compose, jobs_of, refuse_as_unread, stdout_of
from tests.run.evaluated_sources import Sources
from tests.run.test_own_benchmark import Own

REFUSED = """
evaluate weights=zoo:clip-0 name=none | by wise_ft=... or by an evaluation of finished runs (name=
evaluate weights=zoo:clip-0 benchmark=retrieval data.cf_ratio=0.3 | by benchmarks that ask about a
evaluate weights=zoo:clip-0 benchmark=retrieval evaluate_initial=true | by an evaluation of finished
evaluate name=mine model=tiny_flava | by an evaluation of a checkpoint (weights=..., or model=...
evaluate name=mine seed=99 | or by a benchmark of texts alone, not by an evaluation of finished runs
evaluate name=mine benchmark=heldout data.holdout=0.9 | , not by an evaluation of finished runs
evaluate runs=[folder] name=mine | with runs=null
evaluate wise_ft=[0,1] name=mine tabulate=all | not by wise_ft=...
evaluate name=x baseline=real comparison.baselines=[a] | with baseline=null
evaluate weights=zoo:clip-0 failure_rule.alpha=0.1 | with failures=...
evaluate weights=zoo:clip-0 model.logit_scale_max=3 | in training, by train.py
evaluate weights=zoo:clip-0 benchmark=retrieval benchmark.data=/x seed=5 | with a part of the embedded
evaluate weights=zoo:clip-0 benchmark=retrieval benchmark.data=/x benchmark.without_leaks=true | with finished
evaluate weights=zoo:clip-0 benchmark=pairs benchmark.question=vqascore | with a model that provides Answerer
evaluate weights=zoo:clip-0 benchmark=matching benchmark.seed=3 | with benchmark.real=...
evaluate weights=zoo:clip-0 benchmark=ood benchmark.folders.cifar10_classification.data=/x | .where=folders, or
evaluate weights=zoo:clip-0 benchmark=ood benchmark.where=folders benchmark.skip=[flickr30k_retrieval] benchmark.folders.flickr30k_retrieval.folds=3 | .skip without
evaluate name=x benchmark=retrieval benchmark.data=shapescapes:ood benchmark.without_leaks=true | .data=FOLDER
evaluate model=tiny_vlm benchmark=vqa benchmark.order_seed=99 | with benchmark.option_order=shuffled
train task=entailment data.stratify=true | in mixtures of both sources
train data.cf_ratio=1 data.real_captions=edited | with real examples (data.cf_ratio below 1)
train data.cf_ratio=0 data.negatives=text | with counterfactual examples (data.cf_ratio above 0)
train data.cf_ratio=0 loss=pair_aware loss.hard_negative_weight=50 | with counterfactual examples
train loss=hard_negatives loss.negative_weight=3 | with data.negatives=text or data.negatives=image, or
train loss=set_invariance loss.set_invariance=0 loss.invariance=kl | with loss.set_invariance=...
train image_cache_mib=5 | with share_image_cache=true
train parallel=2 | in sweeps (--multirun)
train optim.lr=0.2 preset.optim.lr=0.1 | by settings that take it (${preset....})
train +by_seed.7=x | by settings that name ${seed}
train data.validation=0 trainer.val_every_steps=3 | with data.validation above 0
train trainer.max_steps=0 optim.lr=1e-3 | with trainer.max_steps above 0
train trainer.max_steps=0 trainer.precision=bf16 | with trainer.max_steps above 0
train tuning=lora +tuning.lora.merge=false | with data.edits=...
train optim.weight_decay=0 optim.decay_rule=huggingface | with optim.weight_decay=...
train +logger.project=x | with logger.kind=wandb or logger.kind=trackio
train paths.data=/nowhere | by chosen files that name it (${paths....})
train data.world.vqa_pairs=6 | with sources in the embedded world whose parts it draws
train data=folder data.real=photos data.cf_ratio=0 world@data.world=questions | with sources in the
train data.near_duplicates=report | with data.holdout=..., or data.counterfactual_holdout=...
train data.batch_size=8 trainer.micro_batch_size=100 | in batches of more examples than that
train data.batch_size=8 trainer.devices=2 trainer.micro_batch_size=4 | in batches of more examples
generate parallel=2 | in sweeps (--multirun)
generate recipe=deletion limit=3 export.layout=grid | with export.hub=...
generate recipe=deletion zoo.diffusion.device=cuda | by parts of the recipe that are used
generate stage=captions recipe.draws.candidates=4 | with stage=images or stage=all
generate stage=captions export.hub=x | with stage=images or stage=all
generate stage=images recipe.editor.top_k=3 | with stage=captions or stage=all
generate stage=images limit=3 | with stage=captions or stage=all, or recipe.source_images=true
generate recipe=clare stage=images data.leave_out.colour=0.5 | stage=captions
generate data.keep_duplicates=true | with data.grid=...
generate recipe.editor.part_of_speech=verb +recipe.editor.noun_runs=head | .part_of_speech=noun
generate recipe=photo_edits recipe.editor.editor.guards.no_op.threshold=0.5 | no_op.encoder=...
generate recipe=photo_edits +zoo.perturber.temperature=0 +zoo.perturber.top_p=0.5 | temperature=...
generate +zoo.clip.logit_scale_max=3 | with no setting of this part
annotate annotate=simulate pairs=shapescapes:ood_pairs world.vqa_pairs=9 | with a part of the embedded world
annotate annotate=export pairs=/photos seed=4 | with a part of the embedded world
annotate annotate=export pairs=/photos annotate.question.reported=[yes] | by cfaug annotate read and taxonomy
"""  # noqa: E501
"""Commands whose last word is refused, and some of the words about what would read it."""

ACCEPTED = """
evaluate weights=zoo:clip-0 benchmark=retrieval benchmark.data=photos name=null evaluate_initial=false
evaluate weights=zoo:clip-0 benchmark=heldout data.holdout=0.2
evaluate weights=zoo:clip-0 benchmark=ood data.world.style=drawing
evaluate weights=zoo:clip-1 model=tiny_clip benchmark=ood
evaluate weights=zoo:clip-0 seed=5
evaluate benchmark=ood paths.data=/folders name=mine
evaluate model=tiny_clips seed=5 benchmark=retrieval benchmark.data=/x
evaluate model=tiny_vlm benchmark=pairs benchmark.question=vqascore
evaluate name=x benchmark=retrieval benchmark.data=/x benchmark.without_leaks=true
evaluate weights=zoo:clip-0 benchmark=ood benchmark.where=folders benchmark.folders.cifar10_classification.data=/x
train data.cf_ratio=0 data.stratify=false loss=null
train task=vqa data.world.vqa_pairs=6
train loss=negatives loss.negative_weight=3
train preset.optim.lr=0.1 preset.batch_size=8 preset.trainer.max_steps=2
train preset.lora.lr=0.1 tuning=lora
train preset=paper
train -m seed=1,2 parallel=2 on_error=stop
generate zoo=paper data.source=captions.jsonl
generate recipe=deletion limit=3 export.hub=x export.about.license=mit
generate stage=captions recipe.editor.top_k=3 shards.sets_per_shard=3 seed=3
generate stage=images recipe.draws.candidates=4 zoo.diffusion.device=cpu part=0
generate recipe=deletion stage=images data.source=shapescapes:real limit=3
generate recipe=photo_edits recipe.editor.editor.guards.no_op.threshold=1
generate recipe=paraphrase recipe.editor.kinds=[frame,synonym] recipe.editor.synonyms={_target_:cfaug.editing.wordnet.Synonyms}
annotate annotate=simulate pairs=shapescapes:ood_pairs seed=4 world.ood_pairs=9
"""  # noqa: E501


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_a_setting_that_nothing_reads_is_refused_with_what_reads_it(line):
    typed, _, reader = line.partition(" | ")
    name, *words = typed.split()
    with pytest.raises(UserError) as refused:
        jobs_of(name, *words)
    said = str(refused.value)
    key = place_of(words[-1])
    assert said.startswith(f"{words[-1]} would have no effect: {key} is read ")
    assert reader in said
    assert said.endswith("; leave it out")


@pytest.mark.parametrize("line", ACCEPTED.strip().splitlines())
def test_a_setting_that_something_reads_is_accepted(line):
    name, *words = line.split()
    assert jobs_of(name, *words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "noted", "refused"),
    [
        ("train data.cf_ratio=0,0.3 data.pairs_in_batch=true", ["data.pairs_in_batch"], False),
        ("train data.cf_ratio=0 data.pairs_in_batch=true seed=1,2", [], True),
        ("generate stage=captions,images recipe.draws.candidates=3 recipe.editor.top_k=4",
         ["recipe.draws.candidates", "recipe.editor.top_k"], False),
    ],
)  # fmt: skip
def test_a_sweep_is_refused_if_none_of_its_jobs_reads_a_setting(words, noted, refused, capfd):
    name, *typed = words.split()
    if refused:
        refuse_as_unread(name, ["-m", *typed], "; leave it out")
        return
    assert len(jobs_of(name, "-m", *typed)) == 2
    said = capfd.readouterr().err
    assert all(f"note: in 1 of 2 jobs {key}=" in said for key in noted)
    assert "leave it out" not in said  # the other job reads it


class Opens(Own):
    def open(self, context):
        return [self]


def test_a_class_of_somebody_elses_may_read_any_of_the_data(tmp_path):
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark/own.yaml").write_text(f"_target_: {__name__}.Opens\nfound: null\n")
    folder = f"--config-dir={tmp_path}"
    assert compose("evaluate", "weights=zoo:clip-0", "benchmark=own", "data.holdout=0.2", folder)


@pytest.mark.slow
def test_python_is_refused_likewise():
    with pytest.raises(UserError, match=r"part=1 would have no effect"):
        cfaug.mix({"data.cf_ratio": 0, "part": 1, "parts": 2})
    with pytest.raises(UserError, match=r"data\.stratify=True would have no effect"):
        cfaug.mix({"data.cf_ratio": 0, "data.stratify": True})
    with pytest.raises(UserError, match=r"cfaug\.open_source reads data\.world"):
        cfaug.open_source("shapescapes:real", {"data.cf_ratio": 0.5})
    with pytest.raises(UserError, match="seed=3 would have no effect"):
        cfaug.compare("mine", seed=3)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_lists_who_reads_what(name):
    said = stdout_of(import_module(f"cfaug.run.{name}").main, ["--help"])
    readers = describe_readers({"": COMMANDS[name]})
    assert name == "table" or readers
    assert set(readers) <= set(said.splitlines())


@pytest.mark.slow
def test_every_declaration_names_settings_that_there_are():
    top = {name for command in COMMANDS.values() for name in signature_of(command)}
    for kind in {part.kind for part in list_parts(settings_folders())}:
        known = kind.__annotations__ if is_typeddict(kind) else signature_of(kind)
        for name, conditions in declared_by(kind).items():
            each = (case for case in conditions if not isinstance(case, str))
            settings = {key for case in each for key in case if isinstance(key, str)}
            for key in {name, *settings}:
                there = top if key[0] == "/" else known
                assert key.lstrip("/").partition(".")[0] in there, (kind, key)


def test_a_setting_that_none_of_the_finished_runs_reads_is_refused():
    """Their models and data are known once they are found."""
    clip = {MODEL: (DualEncoder, Matcher), TRAINED: True, WORLD: True, LEARNT: "captions"}
    vlm = {**clip, MODEL: (Answerer,), LEARNT: "questions"}
    words = ["name=x", "benchmark=pairs", "benchmark.question=vqascore"]
    node = compose("evaluate", *words)["benchmark"]
    with pytest.raises(UserError, match=r"question is read with a model that provides Answerer"):
        refuse_unread_by_runs(node, words, [clip, clip])
    refuse_unread_by_runs(node, words, [clip, vlm])
    words = ["name=x", "benchmark=ood", "benchmark.folders.cifar10_classification.data=/x"]
    with pytest.raises(UserError, match=r"where=folders"):
        refuse_unread_by_runs(compose("evaluate", *words)["benchmark"], words, [clip])


def test_settings_of_other_sources_are_refused_when_the_source_is_open(tmp_path):
    """They were ignored, or the same numbers were computed again."""
    sources = Sources(tmp_path)
    folder = str(sources._place("shapescapes:ood_pairs"))
    for settings, said in (
        ({"images": "/nowhere"}, r"benchmark\.images=/nowhere would .*is no such list"),
        ({"missing": "skip"}, r"benchmark\.missing=skip would have no effect"),
        ({"form": "aro_relation"}, "does not hold ARO"),
    ):
        with pytest.raises(UserError, match=said):
            PairMatching(data=folder, **settings).open(sources.context)
    with pytest.raises(UserError, match="only single images: leave it out"):
        Retrieval(sources["photos"], counterfactual_holdout=0.3).open(sources.context)
