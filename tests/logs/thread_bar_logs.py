"""Logs of working trainers from public threads: progress bars, DeepSpeed's timers and short lines of their own."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

GoodLog = tuple[str, str, int, float, float]
"""A log, its reader, the number of the job's second iteration, its seconds, and how far off they may be."""

BAR_LOGS: Final[dict[str, GoodLog]] = {
    "axolotl 2023, resumed": (
        """\
[2023-09-17 13:18:20,123] [INFO] [axolotl.utils.dataloader._len_est:264] [PID:11100] [RANK:0] packing_efficiency_estimate: 0.77 total_num_tokens per device: 26275


 32%|████████████████████████████████████▋                                                                             | 281/873 [25:36<52:46,  5.35s/it]

 32%|████████████████████████████████████▊                                                                             | 282/873 [25:40<49:29,  5.02s/it]

 32%|████████████████████████████████████▉                                                                             | 283/873 [25:44<47:06,  4.79s/it]
{'loss': 0.8635, 'learning_rate': 0.0001369640787949015, 'epoch': 0.97}

 33%|█████████████████████████████████████                                                                             | 284/873 [25:49<45:20,  4.62s/it]
""",
        "progress bar",
        282,
        4.25,
        0.3,
    ),
    "accelerate with DeepSpeed's breakdown, glued to the bar": (
        """\
[2023-06-21 07:39:09,443] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | forward: 127.41 | backward: 73.44 | backward_inner: 50.99 | backward_allreduce: 22.40 | step: 72.82
  3%|███                                                                                      | 12/345 [00:07<06:50,  1.23s/it][2023-06-21 07:39:09,625] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | optimizer_allgather: 7.96 | optimizer_gradients: 0.02 | optimizer_step: 60.64
[2023-06-21 07:39:09,625] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | forward_microstep: 27.48 | backward_microstep: 73.59 | backward_inner_microstep: 51.05 | backward_allreduce_microstep: 22.49 | step_microstep: 72.59
[2023-06-21 07:39:09,626] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | forward: 27.46 | backward: 73.60 | backward_inner: 51.05 | backward_allreduce: 22.50 | step: 72.60
  4%|███▎                                                                                     | 13/345 [00:07<05:03,  1.09it/s][2023-06-21 07:39:09,809] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | optimizer_allgather: 7.64 | optimizer_gradients: 0.02 | optimizer_step: 62.39
""",
        "wall-clock breakdown",
        2,
        0.17366,
        1e-6,
    ),
    "deepspeed 2020, timer of every fiftieth step": (
        """\
[INFO 2020-06-08 05:55:09] 0/400, SamplesPerSec=7.458824487454903
time (ms) | forward_microstep: 193.65 | backward_microstep: 329.25 | backward_inner_microstep: 329.14 | backward_allreduce_microstep: 0.05 | step_microstep: 0.92
[INFO 2020-06-08 06:02:19] 0/450, SamplesPerSec=7.441200000000000
time (ms) | forward_microstep: 203.21 | backward_microstep: 323.86 | backward_inner_microstep: 323.81 | backward_allreduce_microstep: 0.02 | step_microstep: 0.03
""",
        "throughput timer",
        450,
        64 / 7.4412,
        0.0,
    ),
    "deepspeed 2022 in a notebook": (
        """\
[2022-03-11 02:06:58,985] [INFO] [logging.py:69:log_dist] [Rank 0] step=40, skipped=2, lr=[5e-05], mom=[[0.9, 0.999]]
[2022-03-11 02:06:58,985] [INFO] [timer.py:189:stop] 0/40, SamplesPerSec=83.48609168106144, MemAllocated=0.26GB, MaxMemAllocated=9.02GB
<IPython.core.display.HTML object>
[2022-03-11 02:07:14,130] [INFO] [logging.py:69:log_dist] [Rank 0] step=50, skipped=2, lr=[5e-05], mom=[[0.9, 0.999]]
[2022-03-11 02:07:14,130] [INFO] [timer.py:189:stop] 0/50, SamplesPerSec=83.73838805358588, MemAllocated=0.26GB, MaxMemAllocated=9.02GB
""",
        "throughput timer",
        50,
        64 / 83.73838805358588,
        0.0,
    ),
    "lightning 1, with its sanity check": (
        """\
Set SLURM handle signals.
Validation sanity check: 0it [00:00, ?it/s]
Validation sanity check:   0%|          | 0/2 [00:00<?, ?it/s]
Training: 0it [00:00, ?it/s]
Training:   0%|          | 0/14 [00:00<?, ?it/s]
Epoch 0:   0%|          | 0/14 [00:00<?, ?it/s]
Epoch 0:   7%|▋         | 1/14 [00:03<00:39,  3.05s/it]
Epoch 0:   7%|▋         | 1/14 [00:03<00:39,  3.05s/it, loss=-6.21, v_num=655642]
Epoch 0:  14%|█▍        | 2/14 [00:04<00:24,  2.04s/it, loss=-5.73, v_num=655642]
Epoch 0:  21%|██▏       | 3/14 [00:05<00:18,  1.70s/it, loss=-5.81, v_num=655642]
""",
        "progress bar",
        2,
        1.03,
        0.04,
    ),
    "nanogpt 2023, resumed, without mfu": (
        """\
iter 1631: loss 4.0863, time 2561.94ms
iter 1632: loss 3.7441, time 563.15ms
iter 1633: loss 3.9848, time 562.11ms
""",
        "nanogpt",
        1632,
        0.56315,
        0.0,
    ),
    "llama-cookbook, step and loss in the bar": (
        """\
Training Epoch: 1/3, step 0/50 completed (loss: 1.6359624624252):   2%|██        | 1/50 [00:21<17:41, 21.66s/it]
Training Epoch: 1/3, step 1/50 completed (loss: 1.5359624624252):   4%|████      | 2/50 [00:32<12:15, 15.31s/it]
Training Epoch: 1/3, step 2/50 completed (loss: 1.4359624624252):   6%|██████    | 3/50 [00:43<10:21, 13.22s/it]
""",
        "progress bar",
        2,
        11.0,
        1.0,
    ),
    "modded-nanogpt, total time": (
        """\
step:1/1750 train_time:211ms step_avg:211.02ms
step:2/1750 train_time:302ms step_avg:151.11ms
step:3/1750 train_time:394ms step_avg:131.40ms
""",
        "nanogpt",
        2,
        0.091,
        0.03,
    ),
    "hf trainer under ray": (
        """\
(head, rank=0, pid=4503)   0%|          | 0/100 [00:00<?, ?it/s]\r(head, rank=0, pid=4503)   1%|          | 1/100 [00:09<14:51,  9.00s/it]
(head, rank=0, pid=4503)   2%|▏         | 2/100 [00:11<08:00,  4.90s/it]\r(head, rank=0, pid=4503)   3%|▎         | 3/100 [00:13<05:54,  3.66s/it]
""",
        "progress bar",
        2,
        2.0,
        0.1,
    ),
    "hf trainer 5 in a pod, values as text": (
        """\
2026-03-04T10:00:09.123456789Z   1%|          | 1/100 [00:09<14:51,  9.00s/it]
2026-03-04T10:00:09.223456789Z {'loss': '1.234', 'grad_norm': '0.5', 'learning_rate': '1e-05', 'epoch': '0.01'}
2026-03-04T10:00:11.123456789Z   2%|▏         | 2/100 [00:11<08:00,  4.90s/it]
2026-03-04T10:00:13.123456789Z   3%|▎         | 3/100 [00:13<05:54,  3.66s/it]
""",
        "progress bar",
        2,
        2.0,
        0.1,
    ),
    "hf trainer with MLPerf's lines behind the bar": (
        """\
  0%|          | 0/1024 [00:00<?, ?it/s]
  0%|          | 1/1024 [00:09<2:36:52,  9.20s/it]:::MLLOG {"namespace": "", "time_ms": 1728986230616, "event_type": "POINT_IN_TIME", "key": "train_loss", "value": 1.884, "metadata": {"file": "mlperf_logging_utils.py", "lineno": 166, "samples_count": 240}}
{'loss': 1.884, 'grad_norm': 0.6294034907656876, 'learning_rate': 0.0003865985597669478, 'epoch': 0.06}
  0%|          | 2/1024 [00:13<1:46:01,  6.15s/it]:::MLLOG {"namespace": "", "time_ms": 1728986234622, "event_type": "POINT_IN_TIME", "key": "train_loss", "value": 1.842, "metadata": {"file": "mlperf_logging_utils.py", "lineno": 166, "samples_count": 480}}
  0%|          | 3/1024 [00:17<1:28:44,  5.21s/it]
""",
        "progress bar",
        2,
        4.0,
        1.0,
    ),
    "diffusers with accelerate, hours to go": (
        """\
Steps:   0%|          | 0/500000 [00:00<?, ?it/s]
Steps:   0%|          | 1/500000 [02:44<22777:40:43, 164.00s/it, loss=0.36, lr=5e-6]n124-137-109:312247:326969 [0] NCCL INFO misc/socket.cc:829 -> 3
Steps:   0%|          | 2/500000 [04:28<17980:12:10, 129.46s/it, loss=0.31, lr=5e-6]
Steps:   0%|          | 3/500000 [06:12<16500:40:43, 118.84s/it, loss=0.33, lr=5e-6]
""",
        "progress bar",
        2,
        104.0,
        1.5,
    ),
}
