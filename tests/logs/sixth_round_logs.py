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
    "qlora-pipe": (
        """\
[2024-06-14 22:08:50.558] [INFO] [qlora-pipe] step:     1 /   900 loss: 1.8120 iter time (s): 19.440 samples/sec: 0.823 eta: 4h51m
[2024-06-14 22:09:02.929] [INFO] [qlora-pipe] step:     2 /   900 loss: 1.7920 iter time (s): 12.371 samples/sec: 1.293 eta: 3h58m
[2024-06-14 22:09:15.331] [INFO] [qlora-pipe] step:     3 /   900 loss: 1.7720 iter time (s): 12.402 samples/sec: 1.290 eta: 3h40m
""",
        "pipeline engine",
        2,
        12.371,
        1e-6,
    ),
    "rich bars at the ends of epochs": (
        """\
Epoch 0/15 ━━━━━━━━━━━━━━━━━━━━━━ 98/98 0:00:31 • 0:00:00 3.14it/s v_num: 2 train/loss: 1.610
Epoch 1/15 ━━━━━━━━━━━━━━━━━━━━━━ 98/98 0:00:26 • 0:00:00 3.82it/s v_num: 2 train/loss: 1.238
Epoch 2/15 ━━━━━━━━━━━━━━━━━━━━━━ 98/98 0:00:26 • 0:00:00 3.80it/s v_num: 2 train/loss: 1.006
""",
        "training summary",
        196,
        26 / 98,
        1e-6,
    ),
    "rich bar without an end": (
        """\
Epoch 0/-2 ━━━━━━━━━━━━━━━━━━━━━━ 2210/-- 0:51:50 • -:--:-- 0.71it/s v_num: k2ad train_loss: 9.871
Epoch 0/-2 ━━━━━━━━━━━━━━━━━━━━━━ 2220/-- 0:52:04 • -:--:-- 0.71it/s v_num: k2ad train_loss: 9.861
Epoch 0/-2 ━━━━━━━━━━━━━━━━━━━━━━ 2230/-- 0:52:18 • -:--:-- 0.71it/s v_num: k2ad train_loss: 9.851
""",
        "progress bar",
        2220,
        1.4,
        0.1,
    ),
    "a loop over epochs smooths its rate": (
        """\
Epoch 0:   8%|▊         | 1/12 [00:04<00:44,  4.00s/it]
Epoch 0:  17%|█▋        | 2/12 [00:04<00:19,  1.94s/it]
Epoch 0:  25%|██▌       | 3/12 [00:05<00:11,  1.28s/it]
Epoch 0:  33%|███▎      | 4/12 [00:05<00:07,  1.03it/s]
Epoch 0:  42%|████▏     | 5/12 [00:06<00:05,  1.25it/s]
""",
        "progress bar",
        2,
        0.5,
        0.03,
    ),
    "lightning's mean after a slow step": (
        """\
Epoch 0:   8%|▊         | 1/12 [00:03<00:33,  0.33it/s]
Epoch 0:  17%|█▋        | 2/12 [00:03<00:16,  0.60it/s]
Epoch 0:  25%|██▌       | 3/12 [00:03<00:10,  0.83it/s]
Epoch 0:  33%|███▎      | 4/12 [00:03<00:07,  1.02it/s]
""",
        "progress bar",
        2,
        0.3,
        0.01,
    ),
    "composer's bar": (
        """\
[epoch=0][batch=21/625]: loss/train/total: 7.0200
train          Epoch   0:    3%|▊                        | 21/625 [00:13<06:05,  1.65ba/s, loss/train/total=7.0200]
train          Epoch   0:    3%|▊                        | 22/625 [00:13<06:05,  1.65ba/s, loss/train/total=7.0100]
train          Epoch   0:    3%|▊                        | 23/625 [00:14<06:04,  1.65ba/s, loss/train/total=7.0000]
""",
        "progress bar",
        22,
        1 / 1.65,
        1e-6,
    ),
    "nanoGPT with an evaluation": (
        """\
2023-04-02 21:14:13 iter 3970: loss 3.9800, time 870.70ms, mfu 17.61%
2023-04-02 21:14:22 iter 3980: loss 3.9700, time 868.10ms, mfu 17.61%
2023-04-02 21:14:31 iter 3990: loss 3.9600, time 870.70ms, mfu 17.61%
2023-04-02 21:15:12 step 4000: train loss 3.9120, val loss 3.9301
2023-04-02 21:15:21 iter 4000: loss 3.9514, time 44120.81ms, mfu 16.02%
""",
        "nanogpt",
        3980,
        0.8681,
        1e-6,
    ),
    "litgpt": (
        """\
Epoch 1 | iter 1 step 0 | loss train: 1.646, val: n/a | iter time: 820.00 ms
Epoch 1 | iter 2 step 1 | loss train: 1.660, val: n/a | iter time: 548.00 ms (step)
Epoch 1 | iter 3 step 1 | loss train: 1.687, val: n/a | iter time: 300.00 ms
Epoch 1 | iter 4 step 2 | loss train: 1.597, val: n/a | iter time: 595.00 ms (step)
Epoch 1 | iter 5 step 2 | loss train: 1.640, val: n/a | iter time: 300.00 ms
Epoch 1 | iter 6 step 3 | loss train: 1.703, val: n/a | iter time: 590.00 ms (step)
""",
        "litgpt",
        2,
        0.895,
        1e-6,
    ),
    "litgpt, every fifth step": (
        """\
Epoch 3 | iter 120050 step 12005 | loss train: 2.981, val: 3.012 | iter time: 188.30 ms (step) remaining time: 0:15:30
Epoch 3 | iter 120100 step 12010 | loss train: 2.971, val: 3.012 | iter time: 186.90 ms (step) remaining time: 0:15:20
Epoch 3 | iter 120150 step 12015 | loss train: 2.961, val: 3.012 | iter time: 188.30 ms (step) remaining time: 0:15:11
""",
        "litgpt",
        12010,
        1.869,
        1e-6,
    ),
    "composer's bars at the ends of epochs": (
        """\
train          Epoch   0:  100%|█████████████████████████| 540/540 [09:40<00:00,  1.07s/ba, loss/train/total=6.3012]
eval           Epoch   0:  100%|█████████████████████████| 22/22 [00:24<00:00,  1.09s/ba, metrics/eval/Accuracy=0.0518]
train          Epoch   1:  100%|█████████████████████████| 540/540 [07:02<00:00,  1.28ba/s, loss/train/total=5.5420]
eval           Epoch   1:  100%|█████████████████████████| 22/22 [00:24<00:00,  1.11s/ba, metrics/eval/Accuracy=0.1980]
train          Epoch   2:  100%|█████████████████████████| 540/540 [06:51<00:00,  1.31ba/s, loss/train/total=4.9911]
""",
        "training summary",
        1080,
        1 / 1.28,
        1e-6,
    ),
    "the middle of a loop over epochs": (
        """\
Epoch 0:  47%|████▋     | 45/96 [02:43<03:03,  3.61s/it]
Epoch 0:  48%|████▊     | 46/96 [02:47<02:59,  3.59s/it]
Epoch 0:  49%|████▉     | 47/96 [02:50<02:56,  3.61s/it]
Epoch 0:  50%|█████     | 48/96 [02:54<02:52,  3.60s/it]
""",
        "progress bar",
        46,
        (3.59 - 0.7 * 3.61) / 0.3,
        1e-6,
    ),
    "the middle of a trainer's bar": (
        """\
 45%|████▌     | 45/100 [02:43<03:19,  3.62s/it]
 46%|████▌     | 46/100 [02:47<03:14,  3.60s/it]
 47%|████▋     | 47/100 [02:50<03:11,  3.61s/it]
""",
        "progress bar",
        46,
        (3.60 - 0.7 * 3.62) / 0.3,
        1e-6,
    ),
    "llama2.c": (
        """\
260 | loss 6.1113 | lr 2.600000e-05 | 5412.33ms | mfu 0.32%
270 | loss 6.0640 | lr 2.700000e-05 | 5398.07ms | mfu 0.32%
280 | loss 5.8062 | lr 2.800000e-05 | 5467.92ms | mfu 0.32%
""",
        "nanogpt",
        270,
        5.39807,
        1e-6,
    ),
    "modded-nanogpt, validations": (
        """\
step:0/1390 val_loss:10.8258 train_time:0ms step_avg:nanms
step:125/1390 val_loss:4.4102 train_time:35000ms step_avg:311.42ms
step:250/1390 val_loss:4.0217 train_time:75000ms step_avg:313.90ms
step:375/1390 val_loss:3.8466 train_time:115000ms step_avg:316.05ms
""",
        "nanogpt",
        250,
        0.32,
        1e-6,
    ),
    "torchtitan without TFLOPs": (
        """\
[rank0]:[titan] 2025-08-19 10:41:11,406 - root - INFO - step:  1  loss:  8.2011  memory:  5.12GiB(6.46%)  tps: 112
[rank0]:[titan] 2025-08-19 10:41:11,906 - root - INFO - step:  2  loss:  8.1722  memory:  5.12GiB(6.46%)  tps: 16,384
[rank0]:[titan] 2025-08-19 10:41:12,406 - root - INFO - step:  3  loss:  8.0950  memory:  5.12GiB(6.46%)  tps: 16,384
""",
        "torchtitan",
        2,
        1.0,
        1e-6,
    ),
    "llama-factory with evaluations": (
        """\
{"current_steps": 10, "total_steps": 93, "loss": 1.6, "epoch": 0.1, "percentage": 10.0, "elapsed_time": "0:00:25", "remaining_time": "0:03:00"}
{"current_steps": 10, "total_steps": 93, "eval_loss": 1.5, "epoch": 0.1, "percentage": 10.0, "elapsed_time": "0:01:25", "remaining_time": "0:10:00"}
{"current_steps": 20, "total_steps": 93, "loss": 1.5, "epoch": 0.2, "percentage": 20.0, "elapsed_time": "0:01:45", "remaining_time": "0:06:00"}
{"current_steps": 20, "total_steps": 93, "eval_loss": 1.4, "epoch": 0.2, "percentage": 20.0, "elapsed_time": "0:02:45", "remaining_time": "0:10:00"}
{"current_steps": 30, "total_steps": 93, "loss": 1.4, "epoch": 0.3, "percentage": 30.0, "elapsed_time": "0:03:05", "remaining_time": "0:06:00"}
""",
        "elapsed time",
        20,
        2.0,
        1e-6,
    ),
    "litgpt, two ranks": (
        """\
Epoch 1 | iter 1 step 0 | loss train: 1.646, val: n/a | iter time: 820.00 ms
Epoch 1 | iter 1 step 0 | loss train: 1.646, val: n/a | iter time: 821.00 ms
Epoch 1 | iter 2 step 1 | loss train: 1.660, val: n/a | iter time: 548.00 ms (step)
Epoch 1 | iter 2 step 1 | loss train: 1.660, val: n/a | iter time: 549.00 ms (step)
Epoch 1 | iter 3 step 1 | loss train: 1.687, val: n/a | iter time: 300.00 ms
Epoch 1 | iter 3 step 1 | loss train: 1.690, val: n/a | iter time: 301.00 ms
Epoch 1 | iter 4 step 2 | loss train: 1.597, val: n/a | iter time: 595.00 ms (step)
Epoch 1 | iter 4 step 2 | loss train: 1.599, val: n/a | iter time: 596.00 ms (step)
Epoch 1 | iter 5 step 2 | loss train: 1.640, val: n/a | iter time: 300.00 ms
Epoch 1 | iter 5 step 2 | loss train: 1.640, val: n/a | iter time: 300.00 ms
Epoch 1 | iter 6 step 3 | loss train: 1.703, val: n/a | iter time: 590.00 ms (step)
Epoch 1 | iter 6 step 3 | loss train: 1.703, val: n/a | iter time: 590.00 ms (step)
""",
        "litgpt",
        2,
        0.895,
        1e-6,
    ),
}
