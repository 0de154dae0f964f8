.PHONY: cfmm

CFMM := paths.runs=runs/cfmm
CFMM_QUESTIONS := shards/shapescapes-vqa/questions.jsonl
CFMM_ASK := model=tiny_vlm benchmark=vqa benchmark.data=$(CFMM_QUESTIONS) benchmark.name=shapescapes
CFMM_MODELS := 'table.models={basic questions alone: weights/zoo-vlm-basic-0, basic and counterfactual: weights/zoo-vlm-both-0}'

cfmm: $(STAMP) $(CFMM_QUESTIONS)  ## CFMM on ShapeScapes: does a model that sees reason about "if ...", and does training help: runs/cfmm/report.html (11 min, 5 seeds)
	$(BIN)/python evaluate.py --multirun weights=zoo:vlm-basic-0,zoo:vlm-both-0 $(CFMM_ASK) $(CFMM)
	$(BIN)/python train.py --multirun sweep=sweeps/cfmm_training.yaml parallel=2 $(CFMM)
	$(BIN)/python evaluate.py name=cfmm_training comparison=cfmm_training $(CFMM)
	$(BIN)/python -m cfaug table cfmm_oracle table.questions=$(CFMM_QUESTIONS) $(CFMM_MODELS) $(CFMM)
	$(BIN)/python -m cfaug table cfmm_2 cfmm_3 $(CFMM_MODELS) $(CFMM)
	$(BIN)/python -m cfaug table cfmm_figure_4 'table.questions={ShapeScapes-VQA: $(CFMM_QUESTIONS)}' $(CFMM)
	$(BIN)/python -m cfaug table cfmm_training $(CFMM)
	cp runs/cfmm/tables/report.html runs/cfmm/report.html

$(CFMM_QUESTIONS): | $(STAMP)
	rm -rf $(@D)
	$(BIN)/python -m zoo questions out=$(@D) part=test pairs=300
