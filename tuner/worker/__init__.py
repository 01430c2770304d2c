"""The training program of a job: a Megatron-style GPT under DeepSpeed that implements a topology exactly.

Suggested reading order: `__main__` (entry point of a rank), `mesh` (process groups),
`parallel` (operations with communication), `weights` (initial values), `linear`, `mlp` (with the experts), `block`,
`vocabulary`, `model`, `data` (synthetic tokens), `train` (the loop) and `report` (log lines and the result file).
"""
