.PHONY: stress

STRESS := paths.runs=runs/stress
STRESS_MODELS := 'table.models={background: "weights/zoo-classifier-background-*", colour: "weights/zoo-classifier-colour-*", style: "weights/zoo-classifier-style-*", none: "weights/zoo-classifier-none-*"}'
STRESS_SETS := benchmark.data=shards/stress/lance-background benchmark.random=shards/stress/lance_r-background

stress: $(STAMP)  ## LANCE on ShapeScapes: classifiers with planted shortcuts, and what the oracle says: runs/stress/report.html (11 min, trains nothing)
	$(BIN)/python generate.py --multirun sweep=sweeps/stress_generate.yaml parallel=2
	$(BIN)/python generate.py --multirun sweep=sweeps/stress_inversions.yaml parallel=2
	$(BIN)/python evaluate.py --multirun sweep=sweeps/stress.yaml
	$(BIN)/python evaluate.py benchmark=image_quality weights=zoo:clip-domains $(STRESS_SETS) $(STRESS)
	$(BIN)/python evaluate.py benchmark=caption_perplexity model=language_model weights=zoo:language/causal $(STRESS_SETS) $(STRESS)
	$(BIN)/python -m cfaug table lance_3 table.partial=true 'table.backends.ShapeScapes=shards/stress/lance-background' $(STRESS)
	$(BIN)/python -m cfaug table lance_2 lance_figure_3 lance_figure_6 $(STRESS_MODELS) $(STRESS)
	$(BIN)/python -m cfaug table lance_4 lance_figure_4 lance_discovery lance_edits table.partial=true $(STRESS)
	cp runs/stress/tables/report.html runs/stress/report.html
