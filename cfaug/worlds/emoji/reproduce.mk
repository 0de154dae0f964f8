.PHONY: emoji

EMOJI := paths.runs=runs/emoji
EMOJI_ARMS := emoji/before,emoji/real,emoji/more_real,emoji/pairs,emoji/members,emoji/text_negatives,emoji/frozen,emoji/weighted

emoji: $(STAMP)  ## do predictions from ShapeScapes hold on pictures that others drew: runs/emoji/report.html (10 min, 5 seeds)
	$(BIN)/python -m cfaug table emoji declare=true $(EMOJI)
	$(BIN)/python train.py --multirun experiment=$(EMOJI_ARMS) 'seed=range(107,112)' threads=1 parallel=2 share_image_cache=true $(EMOJI)
	$(BIN)/python evaluate.py name=emoji benchmark=emoji $(EMOJI)
	$(BIN)/python -m cfaug table emoji $(EMOJI)
	cp runs/emoji/tables/report.html runs/emoji/report.html
