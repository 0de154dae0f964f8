"""Tiny random language models, saved as the Hub holds the real ones, and a tiny WordNet."""

from __future__ import annotations

import json
from pathlib import Path

import torch

CAPTIONS = [
    "A man in a red shirt rides a brown horse on the beach.",
    "Two dogs play with a ball in the snow.",
    "A woman holding an orange umbrella in the rain",
    "Cats sleeping on a wooden bench near a fire hydrant.",
    "A small child eats pizza at a table, next to a dog.",
    "a bus parked on a street in front of a building",
    "The baker's oven is full of bread.",
    "People skiing down a snowy hill",
]
"""Written for these tests."""


def real_captions() -> list[str]:
    """Return 200 captions of 40 real photos, five of each together."""
    file = Path(__file__).parents[1] / "zoo" / "held_out_captions.json"
    return [text for scene in json.loads(file.read_text())["scenes"] for text in scene]


def _byte_level(texts, size, special):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    inner.train_from_iterator(texts, trainer)
    state = json.loads(inner.to_str())["model"]
    return state["vocab"], [tuple(m) if isinstance(m, list) else m for m in state["merges"]]


def save_as(model_class, config, tokenizer, folder, seed=0, **options):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = model_class(config, **options)
        for parameter in model.parameters():
            # The usual 0.02 makes a random model so flat that nothing ranks.
            parameter.data.mul_(8)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def roberta_tokenizer(size=420):
    from transformers import AddedToken, RobertaTokenizer

    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocab, merges = _byte_level(CAPTIONS * 3, size, special)
    mask = AddedToken("<mask>", lstrip=True, special=True)
    return RobertaTokenizer(vocab=vocab, merges=merges, mask_token=mask, model_max_length=32)


def save_roberta(folder: Path, seed=0) -> Path:
    from transformers import RobertaConfig, RobertaForMaskedLM

    tokenizer = roberta_tokenizer()
    config = RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=34, type_vocab_size=1,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=0, eos_token_id=2,
    )  # fmt: skip
    return save_as(RobertaForMaskedLM, config, tokenizer, folder, seed)


def gpt2_tokenizer(longest=32):
    from transformers import GPT2Tokenizer

    vocab, merges = _byte_level(CAPTIONS * 3, 420, ["<|endoftext|>"])
    return GPT2Tokenizer(vocab=vocab, merges=merges, model_max_length=longest)


def save_gpt2(folder: Path, seed=0, longest=32) -> Path:
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = gpt2_tokenizer(longest)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=longest, n_embd=32, n_layer=2, n_head=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return save_as(GPT2LMHeadModel, config, tokenizer, folder, seed)


def bert_tokenizer(max_length=32):
    from transformers import BertTokenizer

    words = sorted({w for text in CAPTIONS for w in text.lower().replace(".", " ").split()})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", *words]
    pieces += [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"] + list("abcdefghijklmnopqrstuvwxyz")
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    return BertTokenizer(vocab=vocab, do_lower_case=True, model_max_length=max_length)


def _bert_config(tokenizer):
    from transformers import BertConfig

    return BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=64,
    )  # fmt: skip


def save_bert(folder: Path, seed=0) -> Path:
    """A BertForMaskedLM with WordPiece."""
    from transformers import BertForMaskedLM

    tokenizer = bert_tokenizer()
    return save_as(BertForMaskedLM, _bert_config(tokenizer), tokenizer, folder, seed)


def save_minilm(folder: Path, seed=0, pooling="mean_tokens", limit=16) -> Path:
    """As sentence-transformers lays out all-MiniLM-L6-v2."""
    from transformers import BertModel

    tokenizer = bert_tokenizer(64)
    save_as(BertModel, _bert_config(tokenizer), tokenizer, folder, seed)
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    (folder / "1_Pooling").mkdir()
    parts = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    files = {
        "1_Pooling/config.json": {"word_embedding_dimension": 32}
        | {f"pooling_mode_{mode}": mode == pooling for mode in modes},
        "sentence_bert_config.json": {"max_seq_length": limit, "do_lower_case": False},
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.{name}"}
            for i, (name, path) in enumerate(parts)
        ],
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


NOUNS = {
    # sense: (words, kinds it is of); the order of a word's senses is the order here.
    "entity": (["entity"], []),
    "animal": (["animal", "beast"], ["entity"]),
    "dog": (["dog", "domestic_dog"], ["animal"]),
    "cat": (["cat"], ["animal"]),
    "puppy": (["puppy"], ["dog"]),
    "person": (["person"], ["entity"]),
    "man": (["man"], ["person"]),
    "woman": (["woman"], ["person"]),
    "workforce": (["men"], ["entity"]),
    "vehicle": (["vehicle"], ["entity"]),
    "bus": (["bus", "coach"], ["vehicle"]),
    "trainer": (["coach"], ["person"]),
    "frump": (["dog"], ["woman"]),
}


def save_wordnet(folder: Path) -> Path:
    """Write index.noun, data.noun and noun.exc with byte offsets, as wndb(5WN) describes them."""
    down = {name: [n for n, (_, up) in NOUNS.items() if name in up] for name in NOUNS}
    licence = "  1 This is a licence line.\n"

    def line(name, offsets):
        words, up = NOUNS[name]
        pointers = [("@", p) for p in up] + [("~", p) for p in down[name]]
        listed = " ".join(f"{word} 0" for word in words)
        linked = "".join(f"{s} {offsets.get(p, 0):08d} n 0000 " for s, p in pointers)
        return (
            f"{offsets.get(name, 0):08d} 05 n {len(words):02x} {listed} "
            f"{len(pointers):03d} {linked}| what it means  \n"
        )

    offsets, at = {}, len(licence)
    for name in NOUNS:
        offsets[name] = at
        at += len(line(name, {}))
    folder.mkdir(parents=True)
    (folder / "data.noun").write_text(licence + "".join(line(n, offsets) for n in NOUNS))
    senses: dict[str, list[str]] = {}
    for name, (words, _) in NOUNS.items():
        for word in words:
            senses.setdefault(word, []).append(name)
    index = "".join(
        f"{word} n {len(names)} 1 @ {len(names)} 0 "
        f"{' '.join(f'{offsets[n]:08d}' for n in names)}  \n"
        for word, names in sorted(senses.items())
    )
    (folder / "index.noun").write_text(licence + index)
    (folder / "noun.exc").write_text("men man\nwomen woman\noxen ox\n")
    return folder
