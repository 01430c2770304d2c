"""Logs of working trainers, in formats of public repositories that were read blind."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.thread_bar_logs import GoodLog

SIXTH_ROUND_LOGS: Final[dict[str, GoodLog]] = {
    "megatron-bridge, step times": (
        """\
Step Time : 61.40s GPU utilization: 80.1MODEL_TFLOP/s/GPU
Step Time : 14.20s GPU utilization: 346.3MODEL_TFLOP/s/GPU    # CUDA graphs
Step Time : 7.10s GPU utilization: 692.6MODEL_TFLOP/s/GPU
Step Time : 7.06s GPU utilization: 696.5MODEL_TFLOP/s/GPU
""",
        "step time",
        2,
        14.2,
        0.006,
    ),
    "megatron-bridge, both lines": (
        """\
Step Time : 61.40s GPU utilization: 80.1MODEL_TFLOP/s/GPU
 [2026-03-01 10:00:00] iteration        1/      50 | consumed samples:          512 | elapsed time per iteration (ms): 61400.1 | learning rate: 3.000000E-05 | global batch size:   512 | lm loss: 1.174437E+01 | loss scale: 1.0 | grad norm: 9.704 | number of skipped iterations:   0 | number of nan iterations:   0 |
Step Time : 7.10s GPU utilization: 692.6MODEL_TFLOP/s/GPU
 [2026-03-01 10:00:07] iteration        2/      50 | consumed samples:         1024 | elapsed time per iteration (ms): 7101.2 | learning rate: 6.000000E-05 | global batch size:   512 | lm loss: 1.097448E+01 | loss scale: 1.0 | grad norm: 8.170 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        7.1012,
        0.0001,
    ),
    "trainer that counts tokens": (
        """\
{'loss': 2.5, 'grad_norm': 6.8, 'learning_rate': 5e-05, 'epoch': 0.01, 'num_input_tokens_seen': 196608, 'train_runtime': 24.3, 'train_tokens_per_second': 8090.9}
  1%|1         | 1/100 [00:24<40:05, 24.30s/it]
{'loss': 2.4, 'grad_norm': 6.1, 'learning_rate': 4.9e-05, 'epoch': 0.02, 'num_input_tokens_seen': 393216, 'train_runtime': 28.3, 'train_tokens_per_second': 13894.6}
  2%|2         | 2/100 [00:28<20:02, 12.36s/it]
{'loss': 2.3, 'grad_norm': 5.2, 'learning_rate': 4.8e-05, 'epoch': 0.03, 'num_input_tokens_seen': 589824, 'train_runtime': 32.3, 'train_tokens_per_second': 18260.8}
  3%|3         | 3/100 [00:32<13:49,  8.55s/it]
""",
        "progress bar",
        2,
        4.0,
        0.1,
    ),
    "ms-swift without a clock": (
        """\
{'loss': 1.8, 'acc': 0.62, 'grad_norm': 2.75, 'learning_rate': 2e-05, 'memory(GiB)': 16.79, 'train_speed(iter/s)': 0.125, 'epoch': 0.01, 'global_step': 1}
{'loss': 1.7, 'acc': 0.63, 'grad_norm': 3.76, 'learning_rate': 0.0001, 'memory(GiB)': 18.48, 'train_speed(iter/s)': 0.208333, 'epoch': 0.05, 'global_step': 5}
{'loss': 1.4, 'acc': 0.65, 'grad_norm': 1.67, 'learning_rate': 9.4e-05, 'memory(GiB)': 18.48, 'train_speed(iter/s)': 0.227273, 'epoch': 0.11, 'global_step': 10}
""",
        "elapsed time",
        5,
        4.0,
        0.01,
    ),
    "lightning, far from its beginning": (
        """\
Epoch 0:   3%|▎         | 34103/1100000 [5:28:58<171:22:21,  1.73it/s, loss=2.52, v_num=, reduced_train_loss=2.510, global_step=3.1e+4]
Epoch 0:   3%|▎         | 34106/1100000 [5:29:00<171:22:19,  1.73it/s, loss=2.52, v_num=, reduced_train_loss=2.520, global_step=3.1e+4]
Epoch 0:   3%|▎         | 34109/1100000 [5:29:02<171:22:09,  1.73it/s, loss=2.52, v_num=, reduced_train_loss=2.520, global_step=3.1e+4]
""",
        "progress bar",
        34106,
        1 / 1.73,
        1e-9,
    ),
    "olmo 1": (
        """\
[2024-03-01 10:00:00] INFO     [olmo.train:816, rank=0] [step=1/739328]
    train/CrossEntropyLoss=11.35
    throughput/device/tokens_per_second=2,048
    throughput/device/batches_per_second=0.1250
[2024-03-01 10:00:04] INFO     [olmo.train:816, rank=0] [step=2/739328]
    train/CrossEntropyLoss=11.20
    throughput/device/tokens_per_second=4,096
    throughput/device/batches_per_second=0.2500
""",
        "olmo-core",
        2,
        4.0,
        0.01,
    ),
}
