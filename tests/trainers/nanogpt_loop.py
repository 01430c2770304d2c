"""Train as nanoGPT's train.py does: settings as --key=value, a line for each iteration."""

import sys
import time

import torch

config = {"batch_size": 1, "gradient_accumulation_steps": 1, "max_iters": 20, "log_interval": 1}
for argument in sys.argv[1:]:
    key, value = argument.removeprefix("--").split("=")
    if key not in config:
        raise ValueError(f"Unknown config key: {key}")
    config[key] = int(value)

model = torch.nn.Sequential(torch.nn.Embedding(500, 64), torch.nn.Linear(64, 256), torch.nn.Linear(256, 500))
optimizer = torch.optim.AdamW(model.parameters())
began = time.time()
for iter_num in range(config["max_iters"] + 1):
    for _ in range(config["gradient_accumulation_steps"]):
        tokens = torch.randint(0, 500, (config["batch_size"], 64))
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    now = time.time()
    dt, began = now - began, now
    if iter_num % config["log_interval"] == 0:
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {dt * 1000:.2f}ms, mfu {-100:.2f}%")
