.PHONY: xmai

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
	$(BIN)/python -m cfaug table xmai_oracle $(XMAI)
	$(BIN)/python -m cfaug table xmai_1 xmai_4 xmai_5 table.benchmark=methods_insertion $(XMAI_MODELS) $(XMAI)
	$(BIN)/python -m cfaug table xmai_2 table.benchmark=methods_entailment table.relevance=ve_insertion $(XMAI)
	$(BIN)/python -m cfaug table xmai_6 table.benchmark=weights_insertion $(XMAI_MODELS) $(XMAI)
	$(BIN)/python -m cfaug table xmai_figure_4 table.held.k=8 'table.tasks={Retrieval: weights_insertion}' 'table.metrics=[MRR ↓ all photos]' $(XMAI_MODELS) $(XMAI)
	cp runs/xmai/tables/report.html runs/xmai/report.html
