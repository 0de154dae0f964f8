# make -f FOLDER/reproduce.mk swap_colours   where cfaug is installed, in the folder for shards/ and runs/
CFAUG ?= cfaug
SWAP_COLOURS ?= $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))

.PHONY: swap_colours

swap_colours:  ## pairs, two models and their table: runs/swap_colours/tables/report.html (trains nothing)
	$(CFAUG) generate --config-dir "$(SWAP_COLOURS)" recipe=swap_colours limit=200 paths.shards=shards/swap_colours
	$(CFAUG) evaluate --config-dir "$(SWAP_COLOURS)" --multirun sweep=sweeps/swap_colours.yaml
	$(CFAUG) table swap_colours --config-dir "$(SWAP_COLOURS)" paths.runs=runs/swap_colours
