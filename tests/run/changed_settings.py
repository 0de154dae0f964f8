"""What ``test_unread_properties.py`` changes, and settings that leave the results as they are.

Each of these has its reason.
"""

from __future__ import annotations

# Each training takes four steps of the tiny CLIP from the same start.
START = {
    "trainer.max_steps": 4, "optim.lr": 0.01, "optim.warmup": 1, "trainer.progress": False,
    "trainer.val_every_steps": 4, "data.batch_size": 7, "data.size": 20,
    "trainer.checkpoint": "last", "data.world.real_scenes": 40,
    "data.world.counterfactual_pairs": 24, "data.world.unbiased_scenes": 30,
    "data.world.id_scenes": 10, "data.world.ood_pairs": 12, "data.world.seed": 5,
}  # fmt: skip
WORLDS = {
    "bias": 0.2, "style": "drawing", "seed": 6, "drop_colour": 0.9, "shortcut": "colour",
    "skew": 0.5, "compositional_pairs": 22,
}  # fmt: skip
EXAMPLES = {
    "data.size": 15, "data.seed": 77, "data.validation": 0.4, "data.split": "random",
    "data.holdout": 0.2, "data.real_captions": "edited",
    "data.human_labels": "shapescapes:counterfactual", "data.stratify": True,
    "data.pairs_in_batch": True, "data.counterfactual_members": "edited",
    "data.counterfactual_captions": "shuffled", "data.negatives": "text",
    "data.real": "shapescapes:unbiased", "data.counterfactual": "shapescapes:nowhere",
    "loss": "negatives",
}  # fmt: skip
TRAINING = {
    "data.drop_last": True, "data.batch_size": 6,
    "optim.lr": 0.02, "optim.weight_decay": 0.3, "optim.eps": 1e-3, "optim.schedule": "cosine",
    "optim.warmup": 3, "optim.layer_decay": 0.5, "optim.decay_rule": "huggingface",
    "+optim.betas": [0.5, 0.9], "trainer.max_steps": 3, "trainer.precision": "bf16-mixed",
    "trainer.accumulate_grad_batches": 2, "trainer.gradient_clip": 0.01,
    "trainer.ema_decay": 0.5, "trainer.max_epochs": 1, "model.weights": "zoo:clip-1",
    "model.logit_scale_max": 2.0, "+model.revision": "abc", "+model.max_length": 4,
    "model.max_tokens": 99, "model.train_logit_scale": False, "tuning": "heads_only", "seed": 3,
}  # fmt: skip
TRAINED = {
    0: EXAMPLES | {f"data.world.{name}": value for name, value in WORLDS.items()},
    0.5: EXAMPLES | TRAINING,
    1: EXAMPLES | {f"data.world.{name}": value for name, value in WORLDS.items()},
}
"""{ratio: settings and other values}: training takes the examples of a mixture as those of one of
its parts, and a mixture draws both parts of the world."""
OTHERWISE_TRAINED = {
    "data.workers": (1, "who decodes"), "threads": (1, "the number of threads of this process"),
    "trainer.save_every_steps": (1, "how often a run can be resumed from"),
    "trainer.keep_last": (True, "a file beside the weights"),
    "trainer.log_every_steps": (2, "rows of metrics.csv"),
    "share_image_cache": (True, "memory"),
    "data.world.id_scenes": (12, "the size of a test of the same world"),
    "data.world.counterfactual_pairs": (25, "one world for all arms of an experiment"),
    "data.counterfactual_holdout": (0.2, "the test set of all arms, which evaluate.py asks"),
    "data.holdout": (0.2, "the test set of all arms, which evaluate.py asks"),
    "data.real": ("shapescapes:unbiased", "the source of other arms, if this one draws none of it"),
    "data.world.skew": (0.5, "one world for all arms of an experiment"),
}  # fmt: skip
"""{setting: (a value, what it changes besides the weights)}: these may leave the weights equal."""

OF_BENCHMARKS = {
    "batch_size": "speed and memory: how much is computed at once",
    "page": "the length of a page that is drawn from the items, which is no result",
    "apply": "a command that the page shows",
    "images": "the place of photos; one that is missing is an error",
    "missing": "only for a folder that lacks photos, which is an error otherwise",
    "without_missing": "only for a folder that lacks photos, which is an error otherwise",
    "invalid": "only for sets that are not whole, which are an error otherwise",
    "without_leaks": "only for images that a run was trained on, which are reported otherwise",
}
"""Settings of benchmarks that change neither the identity nor the outcome of every test."""

OF_MEMBERS = (
    "without_leaks",
    "question",
    "blind.world.skewed",
    "blind.world.skewed_subjects",
    ".test.restrict",
)
"""Settings that no checkpoint of a dual encoder reads, and those of a world without a skew."""

OF_GENERATION = {
    "threads": "cores of this machine",
    "quiet": "what is printed",
    "verbose": "what is printed",
    "pipeline_scoring": "a second thread; the same bytes",
    "paths.shards": "the place of the result",
    "paths.worlds": "the place of the scenes of shapescapes:PART",
    "paths.cache": "the place of indexes and answers",
    "paths.image_roots": "places from which a list may name images",
    "publish_incomplete": "what happens to failed items, which are listed",
    "overwrite": "what happens to a folder made with other settings",
    "force": "whether photos are refused that a zoo of drawn scenes knows nothing of",
    "dry_run": "whether anything is made",
}
"""Settings at the top, each with the reason why a result does not depend on it. Those of a recipe
are marked ``NO_RESULT`` by their classes."""

IN_OTHER_TESTS = (
    "data.",
    "export.",
    "limit",
    "recipe.example_per",
    "recipe.source_images",
    "stage",
)
"""Settings that the tests of sources, exports and stages change, with real files."""

OF_STEPS = {
    "annotate.out": "the place of what is written",
    "annotate.question.title": "names the question in messages and headings",
    "annotate.category_question": "only with sorted errors, or on the page of taxonomy",
    "annotate.categories": "files of sorted errors, of which there are none here",
    "annotate.question.options": "wordings of answers, whose labels every step reads",
    "annotate.question.field": "the name of an answer in all files of a survey",
    "annotate.question.pictures": "the pictures of the page, and whether the sets are whole",
    "annotate.question.show_caption": "the page, and whether equal images are asked about once",
    "annotate.question.leave_out": "kinds of edits, one of which the source has to hold",
    "annotate.question.reference": "printed beside people's answers to such a question",
    "annotate.question.fields": "the title in tables, the text on the page",
    "annotate.question.attention": "the checks that answers here are not about",
    "annotate.analyses.altered_subjects.wordnet_senses": "WordNet, which this machine may lack",
    "annotate.question.strata": "of grids alone",
    "annotate.question.illustrated": "unanimous answers, of which there are none here",
}
"""Settings that place, name, or matter to other sources than these."""
