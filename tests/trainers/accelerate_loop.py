"""Train with Hugging Face accelerate and a tqdm bar, as its examples do."""

import argparse

import torch
from accelerate import Accelerator
from tqdm.auto import tqdm


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--per-device-batch", type=int, default=1)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=given.accumulation, cpu=True)
    model = torch.nn.Sequential(torch.nn.Embedding(500, 64), torch.nn.Linear(64, 256), torch.nn.Linear(256, 500))
    data = torch.utils.data.TensorDataset(torch.randint(0, 500, (4096, 64)))
    loader = torch.utils.data.DataLoader(data, batch_size=given.per_device_batch)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    bar, done = tqdm(range(given.steps), disable=not accelerator.is_local_main_process), 0
    for (tokens,) in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            bar.update(1)
            done += 1
            bar.set_postfix(loss=loss.item())
        if done == given.steps:
            break


if __name__ == "__main__":
    main()
