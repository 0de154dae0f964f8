.PHONY: social

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
	$(BIN)/python -m cfaug table social_oracle social_debias $(SOCIAL)
	$(BIN)/python -m cfaug table social_models $(SOCIAL_MODELS) $(SOCIAL)
	$(BIN)/python -m cfaug table social_figure_2 $(SOCIAL_MODELS) table.grid=colour_background table.subject_type=null table.conditional=null 'table.title=Figure 2 of the paper, on ShapeScapes' table.claim= $(SOCIAL)
	cp runs/social/tables/report.html runs/social/report.html
