"""The training program that runs inside a job: a Megatron-style GPT under DeepSpeed that realises a topology exactly.

Read it in this order: `__main__` (the start of a rank), `refusals` (what it does not build), `mesh` (who talks to
whom), `parallel` (tensor parallel operations), `weights` (initial values), `linear`, `block`, `vocabulary`, `model`,
`data` (synthetic tokens), `train` (the loop) and `report` (what is printed and written).
"""
