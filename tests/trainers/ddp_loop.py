"""Train with torch's DistributedDataParallel and a print of its own."""

import argparse
import os
import time

import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--microbatches", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Embedding(500, 64), torch.nn.Linear(64, 256), torch.nn.Linear(256, 500))
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(given.steps):
        began = time.time()
        for _ in range(given.microbatches):
            tokens = torch.randint(0, 500, (given.micro_batch, 64))
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if os.environ["RANK"] == "0":
            print(f"epoch 0 | batch {step} | loss {loss.item():.4f} | took {time.time() - began:.4f} sec")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
