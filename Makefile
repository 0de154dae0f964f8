# Everything a fresh machine needs: python3 (3.11 or newer), make and a package registry.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help env demo demo-full editors test test-slow test-all test-system slurm-test gpu lint types floors border docs lock clean-runs

help:  ## list the targets (minutes are those of two cores)
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

env: $(STAMP)  ## create the environment in .venv/ from the pinned versions (TORCH=cpu: without CUDA)

# Another build of torch than the registry's brings its own libraries of CUDA, or none.
LIBRARIES := '^(nvidia-|cuda-|triton==)'
BACKEND := $(if $(TORCH),--torch-backend $(TORCH))

$(STAMP): requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^uv==' requirements.txt)"
	$(if $(TORCH),grep -vE $(LIBRARIES),cat) requirements.txt > .venv/requirements.txt
	$(BIN)/uv pip install --compile-bytecode --python $(BIN)/python $(BACKEND) -r .venv/requirements.txt
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

EXAMPLES ?= few
# A process runs all tests of a file: a costly fixture of a file is made once.
BY_FILE := -n 2 --dist loadfile --no-loadscope-reorder

EDITORS := paths.runs=runs/editors
# The same edits of the same photos by every editor, all of them kept.
EDITS := data.source=shapescapes:real limit=40 data.world.seed=31 'data.world.domains=[photo]' 'recipe.editor.editor.kinds=[background,adjective]' recipe.editor.editor.per_kind=2 'recipe.selection.controls=[reconstruction,background,adjective]'
IMG2IMG := 'recipe.image_editor=$${zoo.photo_editor}' 'recipe.draws.self_replace_steps=[0.0]'
# NAME: its folders, one a seed.
seeds = $(1): [shards/editors/$(2)-0, shards/editors/$(2)-1]
EDITED := {$(call seeds,attention 20 %,attention-0.2), $(call seeds,attention 80 %,attention-0.8), $(call seeds,img2img 50 %,img2img-0.5), $(call seeds,img2img 80 %,img2img-0.8), oracle: shards/editors/oracle-0}

editors: $(STAMP)  ## editors on ShapeScapes: what they keep, success, and what their edits are worth in training: runs/editors/report.html (8 min, 5 seeds)
	$(BIN)/python generate.py recipe=photo_edits_oracle paths.shards=shards/editors/oracle-0 $(EDITS)
	$(BIN)/python generate.py --multirun recipe=photo_edits seed=0,1 'recipe.draws.self_replace_steps=[0.2],[0.8]' 'paths.shards=shards/editors/attention-$${recipe.draws.self_replace_steps[0]}-$${seed}' parallel=2 $(EDITS)
	$(BIN)/python generate.py --multirun recipe=photo_edits seed=0,1 $(IMG2IMG) zoo.photo_editor.settings.strength=0.5,0.8 'paths.shards=shards/editors/img2img-$${zoo.photo_editor.settings.strength}-$${seed}' parallel=2 $(EDITS)
	$(BIN)/python evaluate.py benchmark=edit_quality weights=zoo:clip-domains 'benchmark.data=$(EDITED)' benchmark.judge=oracle $(EDITORS)
	$(BIN)/python train.py --multirun experiment=editors/more_real,editors/attention_20,editors/attention_80,editors/img2img_50,editors/img2img_80,editors/oracle seed=0,1,2,3,4 parallel=2 share_image_cache=true $(EDITORS)
	$(BIN)/python evaluate.py name=editors $(EDITORS)
	$(BIN)/python -m cfaug table edit_quality $(EDITORS)
	cp runs/editors/tables/report.html runs/editors/report.html

# What a paper or a world reproduces: its own targets, as in `make social`.
include $(wildcard cfaug/papers/*/reproduce.mk cfaug/worlds/*/reproduce.mk)

test: $(STAMP)  ## the quick tests, in minutes: all but those marked slow, properties on few examples
	CFAUG_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest $(BY_FILE) -m "not slow"

test-slow: $(STAMP)  ## the other tests: kills, restarts, several processes, whole commands
	$(BIN)/python -m pytest $(BY_FILE) -m slow

test-all: $(STAMP)  ## every test
	$(BIN)/python -m pytest $(BY_FILE)

test-system:  ## as root on Debian: Chromium and LaTeX, without which some tests are skipped
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium texlive-latex-recommended >/dev/null

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

border: $(STAMP)  ## everything without each paper in turn: settings, floors, quick tests
	CFAUG_BORDER=all $(BIN)/python -m pytest -n 2 --dist load tests/test_border.py

docs: $(STAMP)  ## the documentation as a site: build/docs/index.html
	$(BIN)/python -m sphinx -b html -W --keep-going -q docs build/docs

lock: $(STAMP)  ## pin the newest versions that fit pyproject.toml
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev \
	  --no-annotate --no-header --no-emit-index-url pyproject.toml -o requirements.txt

clean-runs:  ## forget the demo's runs
	rm -rf runs/demo
