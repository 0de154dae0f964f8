.PHONY: compositional

COMPOSITIONAL := paths.runs=runs/compositional

compositional: $(STAMP)  ## text-only negatives, image negatives and pairs on ShapeScapes: choices and pairs over seeds: runs/compositional/report.html (22 min, 5 seeds)
	$(BIN)/python generate.py --multirun recipe=substitution world@data.world=compositional data.source=shapescapes_compositional:single_counterfactual limit=320 part=0,1 parts=2 parallel=2 paths.shards=shards/compositional/generated
	$(BIN)/python train.py --multirun sweep=sweeps/compositional.yaml parallel=2 share_image_cache=true $(COMPOSITIONAL)
	$(BIN)/python evaluate.py name=compositional benchmark=shapescapes_compositional comparison=compositional $(COMPOSITIONAL)
	$(BIN)/python evaluate.py --multirun name=compositional arm=plain,text,both 'wise_ft=[0,0.25,0.5,0.75,1]' benchmark=shapescapes_compositional 'benchmark.only=[biased_pairs,drawings_classification]' $(COMPOSITIONAL)
	$(BIN)/python -m cfaug table compositional_oracle compositional_wise_ft $(COMPOSITIONAL)
	cp runs/compositional/tables/report.html runs/compositional/report.html
