.PHONY: tables

TABLES := $(shell ls cfaug/papers/coco_cf/conf/table | sed -n 's/^\(coco_cf.*\)\.yaml$$/\1/p' | sort -V)
TABLES_PAIRS := pairs=shapescapes:counterfactual world.seed=108 world.real_scenes=600 world.counterfactual_pairs=600

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
	$(BIN)/python -m cfaug annotate simulate $(TABLES_PAIRS)
	$(BIN)/python -m cfaug annotate read annotate.analyses.altered_subjects.at_least=10 $(TABLES_PAIRS)
	$(BIN)/python benchmarks/sharing.py --pairs 20 --out runs/sharing
	$(BIN)/python -m cfaug table $(TABLES)
