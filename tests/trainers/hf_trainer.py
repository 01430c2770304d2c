"""Train a tiny GPT-2 with Hugging Face's Trainer, which prints a progress bar and a summary."""

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        tokens = torch.randint(0, 500, (32,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main():
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(sys.argv[1:])
    model = GPT2LMHeadModel(GPT2Config(vocab_size=500, n_positions=32, n_embd=32, n_layer=2, n_head=2))
    Trainer(model=model, args=arguments, train_dataset=Tokens()).train()


if __name__ == "__main__":
    main()
