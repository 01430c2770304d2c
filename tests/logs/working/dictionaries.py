"""Logs of trainers that print dictionaries, summaries or the time since the beginning."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "hf 5 summary only": (
        """\
[  222.6s] {'loss': '5.072', 'grad_norm': '20.19', 'learning_rate': '0', 'epoch': '0.009302'}
[  230.7s] {'loss': '5.086', 'grad_norm': '29.39', 'learning_rate': '0.0002', 'epoch': '0.0186'}
[  239.5s] {'loss': '4.933', 'grad_norm': '19.93', 'learning_rate': '0.00015', 'epoch': '0.02791'}
[  279.4s] {'train_runtime': '98.95', 'train_samples_per_second': '0.808', 'train_steps_per_second': '0.051', 'train_loss': '4.806', 'epoch': '0.04651'}
""",
        "training summary",
        5,
        19.79,
        0.1,
    ),
    "llamafactory jsonl": (
        """\
{"current_steps": 5, "total_steps": 93, "loss": 5.7013, "lr": 1.0000000000000002e-06, "epoch": 0.1646090534979424, "percentage": 5.38, "elapsed_time": "0:02:03", "remaining_time": "0:36:15", "throughput": 13061.0, "total_tokens": 1614784}
{"current_steps": 10, "total_steps": 93, "loss": 4.169, "lr": 2.25e-06, "epoch": 0.3292181069958848, "percentage": 10.75, "elapsed_time": "0:04:02", "remaining_time": "0:33:29", "throughput": 13174.21, "total_tokens": 3189568}
""",
        "elapsed time",
        10,
        23.8,
        0.4,
    ),
    "ms-swift, steps per second": (
        """\
{'loss': 1.60696292, 'token_acc': 0.63554502, 'grad_norm': 1.97572899, 'learning_rate': 0.0001, 'memory(GiB)': 2.44, 'train_speed(iter/s)': 0.250477, 'epoch': 0.0, 'global_step/max_steps': '1/9060', 'percentage': '0.01%', 'elapsed_time': '3s', 'remaining_time': '9h 30m 16s'}
{'loss': 1.5, 'memory(GiB)': 2.44, 'train_speed(iter/s)': 0.270477, 'epoch': 0.0, 'global_step/max_steps': '5/9060', 'percentage': '0.01%', 'elapsed_time': '18s', 'remaining_time': '9h 30m 16s'}
{'loss': 1.66180363, 'token_acc': 0.59449748, 'grad_norm': 1.06889856, 'learning_rate': 9.965e-05, 'memory(GiB)': 5.15, 'train_speed(iter/s)': 0.302867, 'epoch': 0.11, 'global_step/max_steps': '10/9060', 'percentage': '3.75%', 'elapsed_time': '33s', 'remaining_time': '7h 59m 46s'}
""",
        "elapsed time",
        5,
        3.623369408,
        0.0001,
    ),
    "ms-swift's Megatron, resumed": (
        """\
{'lm loss': 0.20536338, 'iteration': '11/18', 'elapsed_time': '8m 30s', 'remaining_time': '59m 30s', 'memory(GiB)': 53.84, 'train_speed(s/it)': 509.881}
{'lm loss': 0.20705265, 'iteration': '12/18', 'elapsed_time': '14m 12s', 'remaining_time': '42m 36s', 'memory(GiB)': 53.84, 'train_speed(s/it)': 426.054}
""",
        "elapsed time",
        12,
        342.0,
        1e-06,
    ),
    "ms-swift, a day later": (
        """\
{'loss': 0.2, 'global_step/max_steps': '78/176', 'percentage': '44.32%', 'elapsed_time': '1d 1h 54m 53s', 'remaining_time': '2h 24m 21s'}
{'loss': 0.2, 'global_step/max_steps': '79/176', 'percentage': '44.89%', 'elapsed_time': '1d 1h 56m 20s', 'remaining_time': '2h 22m 50s'}
""",
        "elapsed time",
        79,
        87.0,
        1e-06,
    ),
    "LLaMA-Factory, a day later": (
        """\
{"current_steps": 5, "total_steps": 93, "loss": 5.7013, "lr": 1e-06, "epoch": 0.16, "percentage": 5.38, "elapsed_time": "23:59:03", "remaining_time": "0:36:15"}
{"current_steps": 10, "total_steps": 93, "loss": 4.169, "lr": 2.25e-06, "epoch": 0.33, "percentage": 10.75, "elapsed_time": "1 day, 0:00:43", "remaining_time": "0:33:29"}
""",
        "elapsed time",
        10,
        20.0,
        1e-06,
    ),
    "hf summary of long training, strings": (
        """\
{'loss': '0.3011', 'grad_norm': '0.411', 'learning_rate': '1.6e-08', 'epoch': '3'}
100%|██████████| 1250/1250 [5:39:10<00:00, 16.11s/it]{'train_runtime': '2.035e+04', 'train_samples_per_second': '3.931', 'train_steps_per_second': '0.061', 'train_loss': '0.31', 'epoch': '3'}
100%|██████████| 1250/1250 [5:39:10<00:00, 16.28s/it]
""",
        "training summary",
        1241,
        16.4,
        0.1,
    ),
    "ms-swift 4 megatron dict": (
        """\
{'loss': '2.11', 'grad_norm': '1.2', 'learning_rate': '1e-05', 'iteration': '1/100', 'elapsed_time': '11s', 'remaining_time': '18m 9s', 'memory(GiB)': '61.2', 'train_speed(s/it)': '11.12'}
{'loss': '2.09', 'grad_norm': '1.2', 'learning_rate': '1e-05', 'iteration': '2/100', 'elapsed_time': '15s', 'remaining_time': '12m 15s', 'memory(GiB)': '61.2', 'train_speed(s/it)': '7.561'}
{'loss': '2.05', 'grad_norm': '1.2', 'learning_rate': '1e-05', 'iteration': '3/100', 'elapsed_time': '19s', 'remaining_time': '10m 15s', 'memory(GiB)': '61.2', 'train_speed(s/it)': '6.374'}
""",
        "elapsed time",
        2,
        4.0,
        0.1,
    ),
    "llama-factory trainer log lines": (
        """\
{"current_steps": 1, "total_steps": 93, "loss": 5.7013, "lr": 1e-06, "epoch": 0.03, "percentage": 1.08, "elapsed_time": "0:00:11", "remaining_time": "0:16:52"}
{"current_steps": 2, "total_steps": 93, "loss": 5.3, "lr": 2e-06, "epoch": 0.06, "percentage": 2.15, "elapsed_time": "0:00:21", "remaining_time": "0:15:55"}
{"current_steps": 3, "total_steps": 93, "loss": 5.1, "lr": 3e-06, "epoch": 0.1, "percentage": 3.23, "elapsed_time": "0:00:31", "remaining_time": "0:15:30"}
""",
        "elapsed time",
        2,
        10,
        0.01,
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
    "rich bars at the ends of epochs": (
        """\
Epoch 0/15 ━━━━━━━━━━━━━━━━━━━━━━ 98/98 0:00:31 • 0:00:00 3.14it/s v_num: 2 train/loss: 1.610
Epoch 1/15 ━━━━━━━━━━━━━━━━━━━━━━ 98/98 0:00:26 • 0:00:00 3.82it/s v_num: 2 train/loss: 1.238
Epoch 2/15 ━━━━━━━━━━━━━━━━━━━━━━ 98/98 0:00:26 • 0:00:00 3.80it/s v_num: 2 train/loss: 1.006
""",
        "training summary",
        196,
        0.2653061224489796,
        1e-06,
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
        0.78125,
        1e-06,
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
        1e-06,
    ),
    "dictionaries behind a logger's timestamp": (
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
    "hf summary, a line per figure": (
        """\
***** train metrics *****
  epoch                    =        3.0
  train_loss               =     1.2345
  train_runtime            = 0:10:00.12
  train_samples_per_second =      5.000
  train_steps_per_second   =      0.625
""",
        "training summary",
        375,
        1.6003,
        0.001,
    ),
    "hf summary as json": (
        """\
{
    "epoch": 1.0,
    "train_loss": 1.05,
    "train_runtime": 75.5,
    "train_samples_per_second": 5.3,
    "train_steps_per_second": 0.662
}
""",
        "training summary",
        50,
        1.51,
        0.001,
    ),
    "a summary through a logger": (
        """\
[2025-08-31 15:23:55,912] [    INFO] - ***** train metrics *****
[2025-08-31 15:23:55,912] [    INFO] -   train_runtime            = 0:02:13.37
[2025-08-31 15:23:55,912] [    INFO] -   train_samples_per_second =     59.981
[2025-08-31 15:23:55,912] [    INFO] -   train_steps_per_second   =      7.498
""",
        "training summary",
        1000,
        0.13337,
        0.001,
    ),
}
