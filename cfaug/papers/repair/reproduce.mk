.PHONY: repair repair-full repair-causes

REPAIR := paths.runs=runs/repair
REPAIR_SEEDS ?= 0,1,2,3,4
REPAIR_WORLD := world@data.world=lance data.world.id_scenes=640
REPAIR_TWO := $(REPAIR_WORLD) data.world.shortcut=colour_and_background
REPAIR_NONE := $(REPAIR_WORLD) data.world.shortcut=none
REPAIR_EDITS := generate.py --multirun recipe=photo_edits_oracle part=0,1 parts=2 parallel=2
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

repair: $(STAMP)  ## are a model's failures found and repaired, against controls of equal size: runs/repair/report.html (25 min, 5 seeds)
	$(BIN)/python -m cfaug table repair declare=true $(REPAIR)
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_WORLD) data.source=shapescapes:find limit=400 paths.shards=shards/repair/find
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_WORLD) data.source=shapescapes:gate limit=480 paths.shards=shards/repair/gate
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_WORLD) data.source=shapescapes:test limit=640 paths.shards=shards/repair/test
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_WORLD) data.world.shortcut=colour data.source=shapescapes:find limit=400 paths.shards=shards/repair/other_find
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_TWO) data.source=shapescapes:find limit=320 paths.shards=shards/repair_two/find
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_TWO) data.source=shapescapes:test limit=480 paths.shards=shards/repair_two/test
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_NONE) data.source=shapescapes:find limit=160 paths.shards=shards/repair_none/find
	$(BIN)/python generate.py --multirun recipe=photo_edits_oracle $(REPAIR_NONE) data.source=shapescapes:find data.world.seed=$(NULLS) limit=48 parallel=2 'paths.shards=shards/repair_null/$${data.world.seed}'
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
	ln -sfn ../repair_two/random shards/repair_clip_two/random
	$(BIN)/python generate.py --multirun recipe=repair $(REPAIR_WORLD) data.failures=shards/repair/failures.jsonl data.budget=160 'recipe.draws.self_replace_steps=[0.0,0.4,0.8]' limit=480 part=0,1 parts=2 parallel=2 paths.shards=shards/repair/other
	$(BIN)/python train.py --multirun experiment=$(REPAIR_ARMS) seed=$(REPAIR_SEEDS) parallel=2 share_image_cache=true $(REPAIR)
	$(BIN)/python $(REPAIR_FIND) model=classifier weights=runs/repair/repair/targeted/seed=0/checkpoint benchmark.data=shards/repair/find failures=shards/repair/failures_2.jsonl
	$(call both,$(BIN)/python $(REPAIR_POOL) data.failures=shards/repair/failures_2.jsonl data.budget=160 seed=1 paths.shards=shards/repair/made_2,$(BIN)/python $(REPAIR_POOL) data.failures=shards/repair/all.jsonl data.weights=equal data.budget=160 seed=1 paths.shards=shards/repair/random_2)
	$(BIN)/python train.py --multirun experiment=repair/targeted_2,repair/random_2 seed=$(REPAIR_SEEDS) parallel=2 share_image_cache=true $(REPAIR)
	$(BIN)/python train.py --multirun experiment=repair/dose data.cf_ratio=0,0.05,0.1,0.4 'arm=dose_$${data.cf_ratio}' seed=$(REPAIR_SEEDS) parallel=2 share_image_cache=true $(REPAIR)
	for arm in before more_real random targeted; do $(BIN)/python train.py --multirun experiment=repair/$$arm arm=$$arm name=repair_two declared=null data.world.shortcut=colour_and_background weights=$(REPAIR_START)/classifier_colour_and_background/seed=0/checkpoint seed=0,1,2 parallel=2 share_image_cache=true $(REPAIR) || exit 1; done
	$(BIN)/python train.py --multirun experiment=repair_clip/before,repair_clip/more_real,repair_clip/random,repair_clip/text_only,repair_clip/targeted seed=0,1,2 parallel=2 share_image_cache=true $(REPAIR)
	for arm in before more_real random targeted; do $(BIN)/python train.py --multirun experiment=repair_clip/$$arm arm=$$arm name=repair_clip_two data.world.shortcut=colour_and_background seed=0,1,2 parallel=2 share_image_cache=true $(REPAIR) || exit 1; done
	$(call both,$(BIN)/python evaluate.py name=repair benchmark=shapescapes_repair $(REPAIR),$(BIN)/python evaluate.py --multirun name=$(REPAIR_OTHERS) benchmark=shapescapes_repair 'benchmark.only=[test_repair]' $(REPAIR))
	$(BIN)/python -m cfaug table repair repair_oracle $(REPAIR)
	cp runs/repair/tables/report.html runs/repair/report.html

REPAIR_FULL := repair table.name=repair_diffusion table.experiment=repair_diffusion 'table.arms.other_editor="targeted edits, by the oracle"' 'table.made=[shards/repair_diffusion/made,shards/repair_diffusion/made_2]'
REPAIR_DIFFUSION := generate.py --multirun recipe=repair $(REPAIR_WORLD) data.budget=160 'recipe.draws.self_replace_steps=[0.0,0.4,0.8]' part=0,1 parts=2 parallel=2

repair-full: $(STAMP)  ## after make repair: the same with a diffusion model's edits in all arms, over 10 seeds (26 min)
	$(BIN)/python -m cfaug table $(REPAIR_FULL) declare=true $(REPAIR)
	mkdir -p shards/repair_diffusion
	for name in failures.jsonl find gate test retrieved; do ln -sfn ../repair/$$name shards/repair_diffusion/$$name; done
	ln -sfn ../repair/made shards/repair_diffusion/other
	$(BIN)/python $(REPAIR_DIFFUSION) data.failures=shards/repair/failures.jsonl paths.shards=shards/repair_diffusion/made
	$(BIN)/python $(REPAIR_DIFFUSION) data.failures=shards/repair/borrowed.jsonl recipe.editor.per_photo=null paths.shards=shards/repair_diffusion/borrowed
	$(BIN)/python $(REPAIR_DIFFUSION) data.failures=shards/repair/all.jsonl data.weights=equal paths.shards=shards/repair_diffusion/random
	$(BIN)/python train.py --multirun experiment=$(REPAIR_ARMS) name=repair_diffusion seed=0,1,2,3,4,5,6,7,8,9 parallel=2 share_image_cache=true $(REPAIR)
	$(BIN)/python $(REPAIR_FIND) model=classifier weights=runs/repair/repair_diffusion/targeted/seed=0/checkpoint benchmark.data=shards/repair/find failures=shards/repair_diffusion/failures_2.jsonl
	$(BIN)/python $(REPAIR_DIFFUSION) seed=1 data.failures=shards/repair_diffusion/failures_2.jsonl paths.shards=shards/repair_diffusion/made_2
	$(BIN)/python $(REPAIR_DIFFUSION) seed=1 data.failures=shards/repair/all.jsonl data.weights=equal paths.shards=shards/repair_diffusion/random_2
	$(BIN)/python train.py --multirun experiment=repair/targeted_2,repair/random_2 name=repair_diffusion seed=0,1,2,3,4,5,6,7,8,9 parallel=2 share_image_cache=true $(REPAIR)
	$(BIN)/python evaluate.py name=repair_diffusion benchmark=shapescapes_repair $(REPAIR)
	$(BIN)/python -m cfaug table $(REPAIR_FULL) $(REPAIR)
	cp runs/repair/tables/report.html runs/repair/report.html

CAUSES := shards/repair_causes
# What the classifier was trained on: the world of make repair, without sketches.
CAUSES_WORLD := $(REPAIR_WORLD) 'data.world.domains=[photo,painting,cartoon,mosaic]'
CAUSES_FIND := $(REPAIR_FIND) model=classifier weights=runs/causes_classifier benchmark.data=$(CAUSES)/find failure_causes.training=shapescapes:real $(CAUSES_WORLD)
CAUSES_POOL := generate.py recipe=repair_oracle $(CAUSES_WORLD) data.budget=160 recipe.editor.per_photo=null
CAUSES_ARMS := repair/before,repair/real_again,repair/more_real,repair/any_real,repair/retrieved,repair/random,repair/targeted

repair-causes: $(STAMP)  ## do failures of coverage and of reliance need different cures: runs/repair_causes/report.html (11 min, 5 seeds)
	test -e runs/causes_classifier/config.json || $(BIN)/python -m zoo classifier out=runs/causes_classifier shortcut=background domains=photo,painting,cartoon,mosaic steps=1300 scenes=5000 warmup=100 lr=0.004
	$(BIN)/python -m cfaug table repair_causes declare=true $(REPAIR)
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_WORLD) data.source=shapescapes:find limit=400 paths.shards=$(CAUSES)/find
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_WORLD) data.source=shapescapes:gate limit=480 paths.shards=$(CAUSES)/gate
	$(BIN)/python $(REPAIR_EDITS) $(REPAIR_WORLD) data.source=shapescapes:test limit=320 paths.shards=$(CAUSES)/test
	$(BIN)/python $(CAUSES_FIND) failures=$(CAUSES)/failures.jsonl
	$(BIN)/python $(CAUSES_FIND) failures=$(CAUSES)/all.jsonl failure_rule.minimum=-1 failure_rule.alpha=1
	$(call both,$(BIN)/python $(CAUSES_POOL) data.failures=$(CAUSES)/failures.jsonl paths.shards=$(CAUSES)/made,$(BIN)/python $(CAUSES_POOL) data.failures=$(CAUSES)/all.jsonl data.weights=equal paths.shards=$(CAUSES)/random)
	$(call both,$(BIN)/python generate.py recipe=retrieved $(REPAIR_WORLD) data.source=shapescapes:real data.failures=$(CAUSES)/failures.jsonl data.budget=160 paths.shards=$(CAUSES)/retrieved,$(BIN)/python generate.py recipe=photo_edits_oracle $(REPAIR_WORLD) data.source=shapescapes:more_real limit=160 paths.shards=$(CAUSES)/any)
	$(BIN)/python train.py --multirun experiment=$(CAUSES_ARMS) name=repair_causes 'data.world.domains=[photo,painting,cartoon,mosaic]' weights=runs/causes_classifier seed=$(REPAIR_SEEDS) parallel=2 share_image_cache=true $(REPAIR)
	$(BIN)/python evaluate.py name=repair_causes benchmark=shapescapes_repair $(REPAIR)
	$(BIN)/python -m cfaug table repair_causes $(REPAIR)
	mkdir -p runs/repair_causes && cp runs/repair/tables/report.html runs/repair_causes/report.html
