"""Train a GPT-2 with Hugging Face's Trainer: `python -m benchmarks.gpu.hf --hidden 2048 --depth 8 --output_dir out`."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


@dataclass
class Sizes:
    """The model."""

    hidden: int = field(default=2048)
    depth: int = field(default=8)
    seq: int = field(default=2048)
    vocab: int = field(default=51200)


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Random tokens."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, self.sizes.vocab, (self.sizes.seq,), generator=generator)
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Train with the parsed arguments."""
    sizes, arguments = HfArgumentParser((Sizes, TrainingArguments)).parse_args_into_dataclasses()
    config = GPT2Config(
        vocab_size=sizes.vocab,
        n_positions=sizes.seq,
        n_embd=sizes.hidden,
        n_layer=sizes.depth,
        n_head=max(1, sizes.hidden // 128),
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
    )
    Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Tokens(sizes)).train()


if __name__ == "__main__":
    main()
