"""The training program of a job: a Megatron-style GPT under DeepSpeed that implements a topology exactly.

Suggested reading order: `__main__` (entry point of a rank), `mesh` (process groups),
`parallel` (tensor parallel operations), `weights` (initial values), `linear`, `block`, `vocabulary`, `model`, `data`
(synthetic tokens), `train` (the loop) and `report` (log lines and the result file).
"""
