"""Logs of working trainers in public formats that were read blind: what else a log says of a step."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.thread_bar_logs import GoodLog

SEVENTH_ROUND_LOGS: Final[dict[str, GoodLog]] = {
    "passes of a step that generates first": (
        """\
  0%|          | 0/940 [00:00<?, ?it/s]
[2025-09-12 11:25:41,522] [INFO] [logging.py:107:log_dist] [Rank 0] time (ms) | fwd: 91977.90 | bwd: 95568.63 | bwd_inner: 95290.03 | bwd_allreduce: 277.10 | step: 101.80
  0%|          | 1/940 [05:41<88:59:46, 341.20s/it]
[2025-09-12 11:30:59,517] [INFO] [logging.py:107:log_dist] [Rank 0] time (ms) | fwd: 91841.93 | bwd: 95269.34 | bwd_inner: 94990.74 | bwd_allreduce: 277.10 | step: 101.80
  0%|          | 2/940 [10:59<85:20:41, 327.55s/it]
[2025-09-12 11:36:15,390] [INFO] [logging.py:107:log_dist] [Rank 0] time (ms) | fwd: 92921.31 | bwd: 95043.38 | bwd_inner: 94764.78 | bwd_allreduce: 277.10 | step: 101.80
  0%|          | 3/940 [16:15<83:51:58, 322.22s/it]
""",
        "progress bar",
        2,
        318.0,
        1.0,
    ),
    "dictionaries behind a logger's time stamp": (
        """\
[rank=1] [2025-11-17 13:22:16,529] INFO:Begin epoch 0 at step 0
[rank=1] [2025-11-17 13:22:55,472] INFO:{'global_step': 10, 'lr': 2.99e-05, 'running_loss': 10.07434, 'epoch': 0, 'tokens_per_s': 8448.1, 'time/total': 3878.7}
[rank=1] [2025-11-17 13:23:05,080] INFO:{'global_step': 20, 'lr': 2.98e-05, 'running_loss': 9.56118, 'epoch': 0, 'tokens_per_s': 34241.6, 'time/total': 956.9}
[rank=1] [2025-11-17 13:23:14,652] INFO:{'global_step': 30, 'lr': 2.97e-05, 'running_loss': 9.26645, 'epoch': 0, 'tokens_per_s': 34368.7, 'time/total': 953.4}
""",
        "elapsed time",
        20,
        0.9608,
        0.0003,
    ),
    "lit-gpt, lines of batches": (
        """\
Validating ...
iter 1 step 0: loss 3.8603, iter time: 1618.42ms
iter 2 step 1: loss 3.8760, iter time: 402.77ms (optimizer.step)
iter 3 step 1: loss 3.8439, iter time: 129.46ms
iter 4 step 2: loss 3.7907, iter time: 216.69ms (optimizer.step)
iter 5 step 2: loss 3.8257, iter time: 133.14ms
iter 6 step 3: loss 3.8054, iter time: 223.63ms (optimizer.step)
""",
        "litgpt",
        2,
        0.34615,
        1e-5,
    ),
    "torchtrain": (
        """\
[rank0]:2024-03-04 16:40:13,768 - root - INFO - step:  1  loss: 10.5198  iter:  2.7184  data: 0.0412  lr: 0.0004
[rank0]:2024-03-04 16:40:14,094 - root - INFO - step:  2  loss: 10.1623  iter:  0.3127  data: 0.0039  lr: 0.0008
[rank0]:2024-03-04 16:40:14,417 - root - INFO - step:  3  loss:  9.7468  iter:  0.3102  data: 0.0037  lr: 0.0008
[rank0]:2024-03-04 16:40:14,742 - root - INFO - step:  4  loss:  9.3212  iter:  0.3119  data: 0.0041  lr: 0.0008
""",
        "torchtitan",
        2,
        0.3127,
        1e-6,
    ),
    "ms-swift with a single bar": (
        """\
{'loss': '1.587', 'grad_norm': '1.329', 'token_acc': '0.611', 'epoch': '0.006452', 'global_step/max_steps': '1/310', 'elapsed_time': '14s', 'remaining_time': '1h 10m 33s', 'memory(GiB)': '55.27', 'train_speed(s/it)': '13.7'}
{'loss': '1.578', 'grad_norm': '1.167', 'token_acc': '0.615', 'epoch': '0.03226', 'global_step/max_steps': '5/310', 'elapsed_time': '49s', 'remaining_time': '50m 8s', 'memory(GiB)': '55.27', 'train_speed(s/it)': '9.862'}
{'loss': '1.563', 'grad_norm': '1.493', 'token_acc': '0.62', 'epoch': '0.06452', 'global_step/max_steps': '10/310', 'elapsed_time': '1m 34s', 'remaining_time': '46m 58s', 'memory(GiB)': '55.27', 'train_speed(s/it)': '9.394'}
{'loss': '1.476', 'grad_norm': '1.342', 'token_acc': '0.625', 'epoch': '0.09677', 'global_step/max_steps': '15/310', 'elapsed_time': '2m 19s', 'remaining_time': '45m 29s', 'memory(GiB)': '55.27', 'train_speed(s/it)': '9.25'}
Train:   5%|███▊                   | 15/310 [02:19<43:57,  8.94s/it]
""",
        "elapsed time",
        5,
        8.902,
        0.01,
    ),
    "sd-scripts, whose bar is not smoothed": (
        """\
steps:   0%|               | 1/17824 [00:05<25:00:06,  5.05s/it, avr_loss=0.123]
steps:   0%|               | 2/17824 [00:06<16:15:45,  3.29s/it, avr_loss=0.123]
steps:   0%|               | 3/17824 [00:08<13:17:59,  2.69s/it, avr_loss=0.123]
steps:   0%|               | 4/17824 [00:09<11:50:34,  2.39s/it, avr_loss=0.123]
steps:   0%|               | 5/17824 [00:11<10:57:31,  2.21s/it, avr_loss=0.123]
steps:   0%|               | 6/17824 [00:12<10:22:08,  2.10s/it, avr_loss=0.123]
""",
        "progress bar",
        2,
        1.52,
        0.04,
    ),
}
