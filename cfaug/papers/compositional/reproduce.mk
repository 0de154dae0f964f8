.PHONY: compositional

COMPOSITIONAL := paths.runs=runs/compositional

compositional: $(STAMP)  ## text-only negatives, image negatives and pairs on ShapeScapes: choices and pairs over seeds: runs/compositional/report.html (22 min, 5 seeds)
	$(BIN)/python generate.py --multirun recipe=substitution world@data.world=compositional data.source=shapescapes_compositional:single_counterfactual limit=320 part=0,1 parts=2 parallel=2 paths.shards=shards/compositional/generated
	$(BIN)/python train.py --multirun sweep=sweeps/compositional.yaml parallel=2 share_image_cache=true $(COMPOSITIONAL)
	$(BIN)/python evaluate.py name=compositional benchmark=shapescapes_compositional comparison=compositional $(COMPOSITIONAL)
	$(BIN)/python evaluate.py --multirun name=compositional arm=plain,text,both 'wise_ft=[0,0.25,0.5,0.75,1]' benchmark=shapescapes_compositional 'benchmark.only=[biased_pairs,drawings_classification]' $(COMPOSITIONAL)
	$(BIN)/python -m cfaug table compositional_oracle compositional_wise_ft $(COMPOSITIONAL)
	cp runs/compositional/tables/report.html runs/compositional/report.html

.PHONY: negation

NEGATION := paths.runs=runs/negation
# The same photos and captions for every recipe; the tiny model has no word for "no", so one phrase is enough.
ITS_CAPTIONS := world@data.world=compositional data.source=shapescapes_compositional:train limit=null
THINGS := 'recipe.editor.objects=[ball,cube,star,cone,heart,ring]' 'recipe.editor.phrases=[no]'
WORLD_NOUNS := data.leave_out=null recipe.scorers.truth=null recipe.editor.top_k=5

negation: $(STAMP)  ## wrong captions by negation against affirmation, nouns and swaps on ShapeScapes: runs/negation/report.html (12 min, 5 seeds)
	$(BIN)/python generate.py recipe=negate zoo=captions $(ITS_CAPTIONS) $(THINGS) paths.shards=shards/negation/negate
	$(BIN)/python generate.py recipe=affirm zoo=captions $(ITS_CAPTIONS) $(THINGS) paths.shards=shards/negation/affirm
	$(BIN)/python generate.py recipe=negclip_swaps zoo=captions $(ITS_CAPTIONS) recipe.editor.repair_article=true paths.shards=shards/negation/swaps
	$(BIN)/python generate.py recipe=replace_nouns zoo=shapescapes $(ITS_CAPTIONS) $(WORLD_NOUNS) paths.shards=shards/negation/nouns
	$(BIN)/python train.py --multirun sweep=sweeps/negation.yaml parallel=2 share_image_cache=true $(NEGATION)
	$(BIN)/python evaluate.py name=negation benchmark=shapescapes_negation comparison=negation $(NEGATION)
	$(BIN)/python -m cfaug table negation_oracle $(NEGATION)
	cp runs/negation/tables/report.html runs/negation/report.html
