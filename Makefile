# Everything a fresh machine needs: python3 (3.11 or newer), make and a package registry.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help env demo demo-full tables stress social xmai compositional cfmm editors repair repair-full test test-slow test-all test-system slurm-test gpu lint types floors docs lock clean-runs

help:  ## list the targets (minutes are those of two cores)
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

env: $(STAMP)  ## create the environment in .venv/ from the pinned versions

$(STAMP): requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^uv==' requirements.txt)"
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python -r requirements.txt
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP)  ## the whole main job: generate, arms over seeds, table, runs/demo/report.html (7 min, 5 seeds)
	$(BIN)/python generate.py --multirun part=0,1 parts=2 parallel=2
	$(BIN)/python train.py --multirun sweep=sweeps/demo.yaml parallel=2
	$(BIN)/python evaluate.py name=demo

demo-full: $(STAMP)  ## every arm, the ratio curve and a second pre-training seed
	$(BIN)/python generate.py --multirun sweep=sweeps/demo_full_generate.yaml
	$(BIN)/python generate.py --multirun sweep=sweeps/demo_full_generate_clear.yaml
	$(BIN)/python train.py --multirun sweep=sweeps/demo_full.yaml parallel=2
	$(BIN)/python train.py --multirun sweep=sweeps/demo_pairing.yaml parallel=2
	$(BIN)/python train.py --multirun sweep=sweeps/ratio_curve.yaml parallel=2
	$(BIN)/python evaluate.py

TABLES := $(shell ls conf/table | sed -n 's/^\(coco_cf.*\)\.yaml$$/\1/p' | sort -V | paste -sd, -)
TABLES_WORLD := data.world.seed=108 data.world.real_scenes=600 data.world.counterfactual_pairs=600

tables: $(STAMP)  ## every table and figure of the paper on ShapeScapes: runs/tables/report.html (17 min, 5 seeds)
	$(BIN)/python train.py --multirun sweep=sweeps/coco_cf_3.yaml parallel=2 share_image_cache=true
	$(BIN)/python train.py --multirun sweep=sweeps/coco_cf_3_control.yaml parallel=2 share_image_cache=true
	$(BIN)/python train.py --multirun sweep=sweeps/coco_cf_11.yaml parallel=2 share_image_cache=true
	$(BIN)/python train.py --multirun sweep=sweeps/coco_cf_5.yaml parallel=2 share_image_cache=true
	$(BIN)/python evaluate.py --multirun name=coco_cf_3,coco_cf_11 benchmark=ood
	$(BIN)/python evaluate.py name=coco_cf_3 benchmark=in_domain
	$(BIN)/python evaluate.py name=coco_cf_5 benchmark=cf 'benchmark.only=[shapescapes_cf_heldout_retrieval]'
	$(BIN)/python evaluate.py --multirun sweep=sweeps/coco_cf_2.yaml
	$(BIN)/python evaluate.py --multirun sweep=sweeps/coco_cf_13.yaml
	$(BIN)/python evaluate.py --multirun sweep=sweeps/coco_cf_figure_3.yaml
	$(BIN)/python evaluate.py annotate=simulate $(TABLES_WORLD)
	$(BIN)/python evaluate.py annotate=read annotate.analyses.altered_subjects.at_least=10 $(TABLES_WORLD)
	$(BIN)/python benchmarks/sharing.py --pairs 20 --out runs/sharing
	$(BIN)/python evaluate.py --multirun table=$(TABLES)

EXAMPLES ?= few
# A process runs all tests of a file: a costly fixture of a file is made once.
BY_FILE := -n 2 --dist loadfile --no-loadscope-reorder

STRESS := paths.runs=runs/stress
STRESS_MODELS := 'table.models={background: "weights/zoo-classifier-background-*", colour: "weights/zoo-classifier-colour-*", style: "weights/zoo-classifier-style-*", none: "weights/zoo-classifier-none-*"}'
STRESS_SETS := benchmark.data=shards/stress/lance-background benchmark.random=shards/stress/lance_r-background

stress: $(STAMP)  ## LANCE on ShapeScapes: classifiers with planted shortcuts, and what the oracle says: runs/stress/report.html (11 min, trains nothing)
	$(BIN)/python generate.py --multirun sweep=sweeps/stress_generate.yaml parallel=2
	$(BIN)/python generate.py --multirun sweep=sweeps/stress_inversions.yaml parallel=2
	$(BIN)/python evaluate.py --multirun sweep=sweeps/stress.yaml
	$(BIN)/python evaluate.py benchmark=image_quality weights=zoo:clip-domains $(STRESS_SETS) $(STRESS)
	$(BIN)/python evaluate.py benchmark=caption_perplexity model=language_model model.name_or_path=zoo:language/causal $(STRESS_SETS) $(STRESS)
	$(BIN)/python evaluate.py table=lance_3 table.partial=true 'table.backends.ShapeScapes=shards/stress/lance-background' $(STRESS)
	$(BIN)/python evaluate.py --multirun table=lance_2,lance_figure_3,lance_figure_6 $(STRESS_MODELS) $(STRESS)
	$(BIN)/python evaluate.py --multirun table=lance_4,lance_figure_4,lance_discovery,lance_edits table.partial=true $(STRESS)
	cp runs/stress/tables/report.html runs/stress/report.html

SOCIAL := paths.runs=runs/social
SOCIAL_SEEDS ?= 107,108,109
SOCIAL_MODELS := table.benchmark=oracle_skew 'table.models={nothing planted: social_nothing/nothing, planted at 0.5: social/both-0.5, planted at 1: social/both-1}'

social: $(STAMP)  ## social bias on ShapeScapes: planted skews, false alarms, what lowers them: runs/social/report.html (13 min, 3 seeds)
	$(BIN)/python generate.py recipe=social_oracle paths.shards=shards/social_debias
	$(BIN)/python generate.py recipe=social_oracle recipe.image_editor.shuffled=true paths.shards=shards/social/shuffled
	$(BIN)/python generate.py --multirun recipe=social part=0,1 parts=2 parallel=2 shards.sets_per_shard=15 recipe.selection.keep=4 paths.shards=shards/social/generated
	$(BIN)/python train.py --multirun experiment=social/before seed=0,1,2 $(SOCIAL)
	$(BIN)/python train.py --multirun sweep=sweeps/social_planted.yaml parallel=2 share_image_cache=true
	$(BIN)/python train.py --multirun sweep=sweeps/social_nothing.yaml parallel=2 share_image_cache=true
	$(BIN)/python evaluate.py --multirun name=social,social_nothing benchmark=social $(SOCIAL)
	$(BIN)/python train.py --multirun sweep=sweeps/social_debias_start.yaml seed=$(SOCIAL_SEEDS) parallel=2 $(SOCIAL)
	$(BIN)/python train.py --multirun sweep=sweeps/social_debias.yaml seed=$(SOCIAL_SEEDS) parallel=2 share_image_cache=true $(SOCIAL)
	$(BIN)/python evaluate.py name=social_debias benchmark=social_debias $(SOCIAL)
	$(BIN)/python evaluate.py --multirun table=social_oracle,social_debias $(SOCIAL)
	$(BIN)/python evaluate.py table=social_models $(SOCIAL_MODELS) $(SOCIAL)
	$(BIN)/python evaluate.py table=social_figure_2 $(SOCIAL_MODELS) table.grid=colour_background table.subject_type=null table.conditional=null 'table.title=Figure 2 of the paper, on ShapeScapes' table.says= $(SOCIAL)
	cp runs/social/tables/report.html runs/social/report.html

XMAI := paths.runs=runs/xmai
XMAI_CLIPS := weights=zoo:clip-0,zoo:clip-1 benchmark=insertion
XMAI_MODELS := 'table.models={CLIP 0: weights/zoo-clip-0, CLIP 1: weights/zoo-clip-1}'
# METHOD: FOLDER, each; and the folders of the sweeps over weights and errors of the detector.
XMAI_SETS := deletion: shards/xmai/deletion, eda: shards/xmai/eda, checklist: shards/xmai/checklist, clare: shards/xmai/clare, xmai: shards/xmai/xmai
XMAI_VE := $(subst shards/xmai/,shards/xmai/ve-,$(XMAI_SETS))
XMAI_WEIGHTS := $(shell for a in 0 1 5 20; do for b in 0 1 5; do echo "w_$${a}_$$b: shards/xmai/weights-$$a-$$b"; done; done | paste -sd, -)
XMAI_ERRORS := e_00: shards/xmai/errors-0, e_10: shards/xmai/errors-0.1, e_20: shards/xmai/errors-0.2, e_40: shards/xmai/errors-0.4

xmai: $(STAMP)  ## attribute insertion on ShapeScapes: is what is inserted true, and whose fault is a drop: runs/xmai/report.html (3 min, trains nothing)
	$(BIN)/python generate.py --multirun sweep=sweeps/xmai_methods.yaml parallel=2
	$(BIN)/python generate.py --multirun sweep=sweeps/xmai_methods_ve.yaml parallel=2
	$(BIN)/python generate.py --multirun sweep=sweeps/xmai_tradeoff.yaml
	$(BIN)/python generate.py --multirun sweep=sweeps/xmai_errors.yaml
	$(BIN)/python evaluate.py --multirun $(XMAI_CLIPS) benchmark.name=methods 'benchmark.data={$(XMAI_SETS)}' $(XMAI)
	$(BIN)/python evaluate.py --multirun $(XMAI_CLIPS) benchmark.name=weights 'benchmark.data={$(XMAI_WEIGHTS)}' benchmark.synonyms=null $(XMAI)
	$(BIN)/python evaluate.py --multirun $(XMAI_CLIPS) benchmark.name=errors 'benchmark.data={$(XMAI_ERRORS)}' benchmark.synonyms=null $(XMAI)
	$(BIN)/python evaluate.py model=tiny_vilt_entailer weights=zoo:entailer-0 benchmark=entailment benchmark.name=methods 'benchmark.data={$(XMAI_VE)}' $(XMAI)
	$(BIN)/python evaluate.py weights=zoo:clip-0 benchmark=insertion benchmark.name=ve 'benchmark.data={$(XMAI_VE)}' $(XMAI)
	$(BIN)/python evaluate.py table=xmai_oracle $(XMAI)
	$(BIN)/python evaluate.py --multirun table=xmai_1,xmai_4,xmai_5 table.benchmark=methods_insertion $(XMAI_MODELS) $(XMAI)
	$(BIN)/python evaluate.py table=xmai_2 table.benchmark=methods_entailment table.relevance=ve_insertion $(XMAI)
	$(BIN)/python evaluate.py table=xmai_6 table.benchmark=weights_insertion $(XMAI_MODELS) $(XMAI)
	$(BIN)/python evaluate.py table=xmai_figure_4 table.held.k=8 'table.tasks={Retrieval: weights_insertion}' 'table.metrics=[MRR ↓ all photos]' $(XMAI_MODELS) $(XMAI)
	cp runs/xmai/tables/report.html runs/xmai/report.html

COMPOSITIONAL := paths.runs=runs/compositional

compositional: $(STAMP)  ## text-only negatives, image negatives and pairs on ShapeScapes: choices and pairs over seeds: runs/compositional/report.html (22 min, 5 seeds)
	$(BIN)/python generate.py --multirun recipe=coco_cf world@data.world=compositional data.source=shapescapes_compositional:single_counterfactual limit=320 part=0,1 parts=2 parallel=2 paths.shards=shards/compositional/generated
	$(BIN)/python train.py --multirun sweep=sweeps/compositional.yaml parallel=2 share_image_cache=true $(COMPOSITIONAL)
	$(BIN)/python evaluate.py name=compositional benchmark=shapescapes_compositional comparison=compositional $(COMPOSITIONAL)
	$(BIN)/python evaluate.py --multirun name=compositional arm=plain,text,both 'wise_ft=[0,0.25,0.5,0.75,1]' benchmark=shapescapes_compositional 'benchmark.only=[biased_pairs,drawings_classification]' $(COMPOSITIONAL)
	$(BIN)/python evaluate.py --multirun table=compositional_oracle,compositional_wise_ft $(COMPOSITIONAL)
	cp runs/compositional/tables/report.html runs/compositional/report.html

CFMM := paths.runs=runs/cfmm
CFMM_QUESTIONS := shards/shapescapes-vqa/questions.jsonl
CFMM_ASK := model=tiny_vlm benchmark=vqa benchmark.data=$(CFMM_QUESTIONS) benchmark.name=shapescapes
CFMM_MODELS := 'table.models={basic questions alone: weights/zoo-vlm-basic-0, basic and counterfactual: weights/zoo-vlm-both-0}'

cfmm: $(STAMP) $(CFMM_QUESTIONS)  ## CFMM on ShapeScapes: does a model that sees reason about "if ...", and does training help: runs/cfmm/report.html (11 min, 5 seeds)
	$(BIN)/python evaluate.py --multirun weights=zoo:vlm-basic-0,zoo:vlm-both-0 $(CFMM_ASK) $(CFMM)
	$(BIN)/python train.py --multirun sweep=sweeps/cfmm_training.yaml parallel=2 $(CFMM)
	$(BIN)/python evaluate.py name=cfmm_training comparison=cfmm_training $(CFMM)
	$(BIN)/python evaluate.py table=cfmm_oracle table.questions=$(CFMM_QUESTIONS) $(CFMM_MODELS) $(CFMM)
	$(BIN)/python evaluate.py --multirun table=cfmm_2,cfmm_3 $(CFMM_MODELS) $(CFMM)
	$(BIN)/python evaluate.py table=cfmm_figure_4 'table.questions={ShapeScapes-VQA: $(CFMM_QUESTIONS)}' $(CFMM)
	$(BIN)/python evaluate.py table=cfmm_training $(CFMM)
	cp runs/cfmm/tables/report.html runs/cfmm/report.html

$(CFMM_QUESTIONS): | $(STAMP)
	rm -rf $(@D)
	$(BIN)/python -m cfaug zoo questions out=$(@D) part=test pairs=300

EDITORS := paths.runs=runs/editors
# The same edits of the same photos by every editor, all of them kept.
EDITS := data.source=shapescapes:real limit=40 data.world.seed=31 'data.world.domains=[photo]' 'recipe.editor.editor.kinds=[background,adjective]' recipe.editor.editor.per_kind=2 'recipe.selection.controls=[reconstruction,background,adjective]'
IMG2IMG := 'recipe.image_editor=$${zoo.photo_editor}' 'recipe.draws.self_replace_steps=[0.0]'
# NAME: its folders, one a seed.
seeds = $(1): [shards/editors/$(2)-0, shards/editors/$(2)-1]
EDITED := {$(call seeds,attention 20 %,attention-0.2), $(call seeds,attention 80 %,attention-0.8), $(call seeds,img2img 50 %,img2img-0.5), $(call seeds,img2img 80 %,img2img-0.8), oracle: shards/editors/oracle-0}

editors: $(STAMP)  ## editors on ShapeScapes: what they keep, success, and what their edits are worth in training: runs/editors/report.html (8 min, 5 seeds)
	$(BIN)/python generate.py recipe=lance_oracle paths.shards=shards/editors/oracle-0 $(EDITS)
	$(BIN)/python generate.py --multirun recipe=lance seed=0,1 'recipe.draws.self_replace_steps=[0.2],[0.8]' 'paths.shards=shards/editors/attention-$${recipe.draws.self_replace_steps[0]}-$${seed}' parallel=2 $(EDITS)
	$(BIN)/python generate.py --multirun recipe=lance seed=0,1 $(IMG2IMG) zoo.photo_editor.settings.strength=0.5,0.8 'paths.shards=shards/editors/img2img-$${zoo.photo_editor.settings.strength}-$${seed}' parallel=2 $(EDITS)
	$(BIN)/python evaluate.py benchmark=edit_quality weights=zoo:clip-domains 'benchmark.data=$(EDITED)' benchmark.judge=oracle $(EDITORS)
	$(BIN)/python train.py --multirun experiment=editors/more_real,editors/attention_20,editors/attention_80,editors/img2img_50,editors/img2img_80,editors/oracle seed=0,1,2,3,4 parallel=2 share_image_cache=true $(EDITORS)
	$(BIN)/python evaluate.py name=editors $(EDITORS)
	$(BIN)/python evaluate.py table=edit_quality $(EDITORS)
	cp runs/editors/tables/report.html runs/editors/report.html

REPAIR := paths.runs=runs/repair
REPAIR_SEEDS ?= 0,1,2,3,4
REPAIR_WORLD := world@data.world=lance data.world.id_scenes=640
REPAIR_TWO := $(REPAIR_WORLD) data.world.shortcut=colour_and_background
REPAIR_NONE := $(REPAIR_WORLD) data.world.shortcut=none
REPAIR_EDITS := generate.py --multirun recipe=lance_oracle part=0,1 parts=2 parallel=2
REPAIR_POOL := generate.py recipe=repair_oracle $(REPAIR_WORLD)
REPAIR_FIND := evaluate.py benchmark=stress benchmark.name=find $(REPAIR)
REPAIR_START := runs/repair/repair_start
REPAIR_ARMS := repair/before,repair/real_again,repair/more_real,repair/retrieved,repair/random,repair/borrowed,repair/unpaired,repair/augmented,repair/targeted,repair/other_editor
REPAIR_SHORTCUTS := none,background,colour_and_background
REPAIR_OTHERS := repair_two,repair_clip,repair_clip_two
# Two commands side by side: each has one process.
both = $(1) & other=$$!; $(2); code=$$?; wait $$other && exit $$code
# The worlds in which nothing is planted.
NULLS := 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19

repair: $(STAMP)  ## are a model's failures found and repaired, against controls of equal size: runs/repair/report.html (19 min, 5 seeds)
	$(BIN)/python evaluate.py table=repair declare=true $(REPAIR)
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_WORLD) data.source=shapescapes:find limit=400 paths.shards=shards/repair/find
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_WORLD) data.source=shapescapes:gate limit=80 paths.shards=shards/repair/gate
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_WORLD) data.source=shapescapes:test limit=160 paths.shards=shards/repair/test
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_WORLD) data.world.shortcut=colour data.source=shapescapes:find limit=400 paths.shards=shards/repair/other_find
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_TWO) data.source=shapescapes:find limit=320 paths.shards=shards/repair_two/find
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_TWO) data.source=shapescapes:test limit=120 paths.shards=shards/repair_two/test
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_NONE) data.source=shapescapes:find limit=160 paths.shards=shards/repair_none/find
	$(BIN)/python generate.py --multirun recipe=lance_oracle $(REPAIR_NONE) data.source=shapescapes:find data.world.seed=$(NULLS) limit=48 parallel=2 'paths.shards=shards/repair_null/$${data.world.seed}'
	mkdir -p shards/repair_clip shards/repair_clip_two
	for name in find test; do ln -sfn ../repair/$$name shards/repair_clip/$$name; ln -sfn ../repair_two/$$name shards/repair_clip_two/$$name; done
	$(call both,$(BIN)/python train.py --multirun experiment=repair/start data.world.shortcut=colour_and_background 'arm=classifier_$${data.world.shortcut}' $(REPAIR),$(BIN)/python train.py --multirun experiment=repair_clip/start data.world.shortcut=$(REPAIR_SHORTCUTS) 'arm=clip_$${data.world.shortcut}' parallel=2 $(REPAIR))
	$(call both,$(BIN)/python $(REPAIR_FIND) model=classifier weights=zoo:classifier-background-0 benchmark.data=shards/repair/find failures=shards/repair/failures.jsonl,$(BIN)/python $(REPAIR_FIND) model=classifier weights=zoo:classifier-colour-0 benchmark.data=shards/repair/other_find failures=shards/repair/borrowed.jsonl)
	$(call both,$(BIN)/python $(REPAIR_FIND) model=classifier weights=zoo:classifier-background-0 benchmark.data=shards/repair/find failures=shards/repair/all.jsonl failure_rule.minimum=-1 failure_rule.alpha=1,$(BIN)/python $(REPAIR_FIND) model=classifier weights=$(REPAIR_START)/classifier_colour_and_background/seed=0/checkpoint benchmark.data=shards/repair_two/find failures=shards/repair_two/failures.jsonl)
	$(call both,$(BIN)/python $(REPAIR_FIND) model=classifier weights=zoo:classifier-none-0 benchmark.data=shards/repair_none/find failures=shards/repair_none/classifier.jsonl,$(BIN)/python $(REPAIR_FIND) weights=$(REPAIR_START)/clip_none/seed=0/checkpoint benchmark.data=shards/repair_none/find failures=shards/repair_none/clip.jsonl)
	$(call both,$(BIN)/python $(REPAIR_FIND) weights=$(REPAIR_START)/clip_background/seed=0/checkpoint benchmark.data=shards/repair/find failures=shards/repair_clip/failures.jsonl,$(BIN)/python $(REPAIR_FIND) weights=$(REPAIR_START)/clip_colour_and_background/seed=0/checkpoint benchmark.data=shards/repair_two/find failures=shards/repair_clip_two/failures.jsonl)
	$(call both,$(BIN)/python evaluate.py --multirun benchmark=stress benchmark.name=null $(REPAIR) model=classifier weights=zoo:classifier-none-0 seed=$(NULLS) 'benchmark.data=shards/repair_null/$${seed}' 'failures=shards/repair_null/$${seed}.jsonl',$(BIN)/python generate.py recipe=retrieved $(REPAIR_WORLD) data.source=shapescapes:real data.failures=shards/repair/failures.jsonl data.budget=160 paths.shards=shards/repair/retrieved)
	$(call both,$(BIN)/python $(REPAIR_POOL) data.failures=shards/repair/failures.jsonl data.budget=160 paths.shards=shards/repair/made,$(BIN)/python $(REPAIR_POOL) data.failures=shards/repair/failures.jsonl data.budget=320 paths.shards=shards/repair/dose)
	$(call both,$(BIN)/python $(REPAIR_POOL) data.failures=shards/repair/borrowed.jsonl data.budget=160 recipe.editor.per_photo=null paths.shards=shards/repair/borrowed,$(BIN)/python $(REPAIR_POOL) data.failures=shards/repair/all.jsonl data.weights=equal data.budget=160 paths.shards=shards/repair/random)
	$(call both,$(BIN)/python generate.py recipe=repair_oracle $(REPAIR_TWO) data.failures=shards/repair_two/failures.jsonl data.budget=160 paths.shards=shards/repair_two/made,$(BIN)/python generate.py recipe=repair_oracle $(REPAIR_TWO) data.failures=shards/repair/all.jsonl data.weights=equal data.budget=160 paths.shards=shards/repair_two/random)
	$(call both,$(BIN)/python $(REPAIR_POOL) data.failures=shards/repair_clip/failures.jsonl data.budget=160 paths.shards=shards/repair_clip/made,$(BIN)/python generate.py recipe=repair_oracle $(REPAIR_TWO) data.failures=shards/repair_clip_two/failures.jsonl data.budget=160 paths.shards=shards/repair_clip_two/made)
	ln -sfn ../repair/random shards/repair_clip/random
	$(BIN)/python generate.py --multirun recipe=repair $(REPAIR_WORLD) data.failures=shards/repair/failures.jsonl data.budget=160 'recipe.draws.self_replace_steps=[0.0,0.4,0.8]' limit=480 part=0,1 parts=2 parallel=2 paths.shards=shards/repair/other
	$(BIN)/python train.py --multirun experiment=$(REPAIR_ARMS) seed=$(REPAIR_SEEDS) parallel=2 share_image_cache=true $(REPAIR)
	$(BIN)/python train.py --multirun experiment=repair/dose data.cf_ratio=0,0.05,0.1,0.4 'arm=dose_$${data.cf_ratio}' seed=$(REPAIR_SEEDS) parallel=2 share_image_cache=true $(REPAIR)
	for arm in before more_real random targeted; do $(BIN)/python train.py --multirun experiment=repair/$$arm arm=$$arm name=repair_two declared=null data.world.shortcut=colour_and_background model.name_or_path=$(REPAIR_START)/classifier_colour_and_background/seed=0/checkpoint seed=0,1,2 parallel=2 share_image_cache=true $(REPAIR) || exit 1; done
	$(BIN)/python train.py --multirun experiment=repair_clip/before,repair_clip/more_real,repair_clip/random,repair_clip/text_only,repair_clip/targeted seed=0,1,2 parallel=2 share_image_cache=true $(REPAIR)
	for arm in before targeted; do $(BIN)/python train.py --multirun experiment=repair_clip/$$arm arm=$$arm name=repair_clip_two data.world.shortcut=colour_and_background seed=0,1,2 parallel=2 share_image_cache=true $(REPAIR) || exit 1; done
	$(call both,$(BIN)/python evaluate.py name=repair benchmark=shapescapes_repair $(REPAIR),$(BIN)/python evaluate.py --multirun name=$(REPAIR_OTHERS) benchmark=shapescapes_repair 'benchmark.only=[test_repair]' $(REPAIR))
	$(BIN)/python evaluate.py --multirun table=repair,repair_oracle $(REPAIR)
	cp runs/repair/tables/report.html runs/repair/report.html

REPAIR_FULL := table=repair table.name=repair_diffusion table.experiment=repair_diffusion 'table.arms.other_editor="targeted edits, by the oracle"' 'table.made=[shards/repair_diffusion/made]'
REPAIR_DIFFUSION := generate.py --multirun recipe=repair $(REPAIR_WORLD) data.budget=160 'recipe.draws.self_replace_steps=[0.0,0.4,0.8]' part=0,1 parts=2 parallel=2

repair-full: $(STAMP)  ## after make repair: the same with a diffusion model's edits in all arms, over 10 seeds (20 min)
	$(BIN)/python evaluate.py $(REPAIR_FULL) declare=true $(REPAIR)
	mkdir -p shards/repair_diffusion
	for name in failures.jsonl find gate test retrieved; do ln -sfn ../repair/$$name shards/repair_diffusion/$$name; done
	ln -sfn ../repair/made shards/repair_diffusion/other
	$(BIN)/python $(REPAIR_DIFFUSION) data.failures=shards/repair/failures.jsonl paths.shards=shards/repair_diffusion/made
	$(BIN)/python $(REPAIR_DIFFUSION) data.failures=shards/repair/borrowed.jsonl recipe.editor.per_photo=null paths.shards=shards/repair_diffusion/borrowed
	$(BIN)/python $(REPAIR_DIFFUSION) data.failures=shards/repair/all.jsonl data.weights=equal paths.shards=shards/repair_diffusion/random
	$(BIN)/python train.py --multirun experiment=$(REPAIR_ARMS) name=repair_diffusion seed=0,1,2,3,4,5,6,7,8,9 parallel=2 share_image_cache=true $(REPAIR)
	$(BIN)/python evaluate.py name=repair_diffusion benchmark=shapescapes_repair $(REPAIR)
	$(BIN)/python evaluate.py $(REPAIR_FULL) $(REPAIR)
	cp runs/repair/tables/report.html runs/repair/report.html

test: $(STAMP)  ## the quick tests, in minutes: all but those marked slow, properties on few examples
	CFAUG_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest $(BY_FILE) -m "not slow"

test-slow: $(STAMP)  ## the other tests: kills, restarts, several processes, whole commands
	$(BIN)/python -m pytest $(BY_FILE) -m slow

test-all: $(STAMP)  ## every test
	$(BIN)/python -m pytest $(BY_FILE)

test-system:  ## as root on Debian: Chromium, without which some tests are skipped
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium >/dev/null

slurm-test: $(STAMP)  ## as root on Debian: install slurm, prove the sbatch scripts, clean up
	$(BIN)/python tools/slurm_test.py

# Not of $(STAMP): a machine with a GPU may have a torch of its own that nothing should replace.
gpu:  ## check this machine's GPU and measure on it: runs/gpu/RESULTS-block.md (20 min at most)
	python="$(BIN)/python"; [ -x "$$python" ] || python="$(PYTHON)"; "$$python" -m tools.gpu $(ARGS)

lint: $(STAMP)  ## ruff, check and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy
	$(BIN)/mypy

floors: $(STAMP)  ## who may import whom
	$(BIN)/lint-imports

docs: $(STAMP)  ## the documentation as a site: build/docs/index.html
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs build/docs

lock: $(STAMP)  ## pin the newest versions that fit pyproject.toml
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev \
	  --no-annotate --no-header --no-emit-index-url pyproject.toml -o requirements.txt

clean-runs:  ## forget the demo's runs
	rm -rf runs/demo
