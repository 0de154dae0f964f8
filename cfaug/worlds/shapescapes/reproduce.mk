.PHONY: shapescapes

WORLDS := paths.runs=runs/emoji
WORLDS_ARMS := shapescapes/real,shapescapes/more_real,shapescapes/pairs,shapescapes/members,shapescapes/text_negatives
QUESTIONS := shapescapes_questions/pairs,shapescapes_questions/frozen,shapescapes_questions/weighted

shapescapes: $(STAMP)  ## the same arms as in make emoji, and two predictions the other way: runs/emoji/tables/report.html (10 min, 5 seeds)
	$(BIN)/python -m cfaug table shapescapes_questions declare=true $(WORLDS)
	$(BIN)/python train.py --multirun experiment=$(WORLDS_ARMS),$(QUESTIONS) 'seed=range(107,112)' threads=1 parallel=2 share_image_cache=true $(WORLDS)
	$(BIN)/python evaluate.py --multirun name=shapescapes,shapescapes_questions $(WORLDS)
	$(BIN)/python -m cfaug table shapescapes shapescapes_questions $(WORLDS)
