"""Logs of working trainers from public threads and repositories: the fourth part of the later rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.thread_bar_logs import GoodLog

FOURTH_ROUND_LOGS: Final[dict[str, GoodLog]] = {
    "olmo 2024, a minute each": (
        """\
[2024-08-18 12:26:53] INFO     [olmo.train:966, rank=0] [step=1/739328,epoch=0]
    optim/total_grad_norm=9.355
    train/CrossEntropyLoss=11.35
    train/Perplexity=84,618
    throughput/total_tokens=4,194,304
    throughput/total_training_Gflops=6,215,264
    System/Peak GPU Memory (MB)=42,083
[2024-08-18 12:27:18] INFO     [olmo.train:966, rank=0] [step=2/739328,epoch=0]
    optim/total_grad_norm=59.20
    train/CrossEntropyLoss=10.57
    throughput/total_tokens=8,388,608
    throughput/device/tokens_per_second=655.3
    throughput/device/batches_per_second=0.0393
    System/Peak GPU Memory (MB)=43,259
[2024-08-18 12:27:44] INFO     [olmo.train:966, rank=0] [step=3/739328,epoch=0]
    train/CrossEntropyLoss=10.70
    throughput/device/tokens_per_second=655.3
    throughput/device/batches_per_second=0.0393
""",
        "olmo-core",
        2,
        25.445292621,
        1.5,
    ),
    "torchtitan, loss minus one": (
        """\
[rank0]:[titan] 2025-05-28 21:13:37,816 - root - INFO - step:  1  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 40  tflops: 1.81  mfu: 0.58%
[rank0]:[titan] 2025-05-28 21:14:39,054 - root - INFO - step:  2  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 268  tflops: 1.81  mfu: 0.58%
[rank0]:[titan] 2025-05-28 21:15:40,293 - root - INFO - step:  3  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 268  tflops: 1.81  mfu: 0.58%
[rank0]:[titan] 2025-05-28 21:16:41,533 - root - INFO - step:  4  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 267  tflops: 1.81  mfu: 0.58%
""",
        "torchtitan",
        2,
        61.134328358,
        0.3,
    ),
    "torchtitan resumed": (
        """\
[rank0]:2025-08-01 10:00:12,100 - root - INFO - step: 1001  loss:  3.1055  grad_norm:  0.44  memory: 49.66GiB(52.28%)  tps: 1,120  tflops: 339.16  mfu: 34.29%
[rank0]:2025-08-01 10:00:13,500 - root - INFO - step: 1002  loss:  3.1055  grad_norm:  0.44  memory: 49.66GiB(52.28%)  tps: 11,700  tflops: 339.16  mfu: 34.29%
[rank0]:2025-08-01 10:00:14,902 - root - INFO - step: 1003  loss:  3.1055  grad_norm:  0.44  memory: 49.66GiB(52.28%)  tps: 11,690  tflops: 339.16  mfu: 34.29%
""",
        "torchtitan",
        1002,
        1.40034188,
        0.001,
    ),
    "colored torchtitan": (
        """\
[rank0]:[titan] 2025-05-16 12:00:10,100 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.2  \x1b[38;2;180;60;0mgrad_norm:  1.30  \x1b[38;2;54;234;195mmemory: 27.34GiB(28.78%)  \x1b[34mtps: 1,002  \x1b[36mtflops: 407.35  \x1b[35mmfu: 41.19%\x1b[39m
[rank0]:[titan] 2025-05-16 12:00:12,430 - root - INFO - \x1b[31mstep:  2  \x1b[32mloss: 12.1  \x1b[38;2;180;60;0mgrad_norm:  1.30  \x1b[38;2;54;234;195mmemory: 27.34GiB(28.78%)  \x1b[34mtps: 7,034  \x1b[36mtflops: 407.35  \x1b[35mmfu: 41.19%\x1b[39m
[rank0]:[titan] 2025-05-16 12:00:14,760 - root - INFO - \x1b[31mstep:  3  \x1b[32mloss: 12.0  \x1b[38;2;180;60;0mgrad_norm:  1.30  \x1b[38;2;54;234;195mmemory: 27.34GiB(28.78%)  \x1b[34mtps: 7,030  \x1b[36mtflops: 407.35  \x1b[35mmfu: 41.19%\x1b[39m
""",
        "torchtitan",
        2,
        2.32925789,
        0.001,
    ),
    "megatron 2026 with tokens": (
        """\
 [2026-05-04 11:01:10.120101] iteration        1/   10000 | consumed samples:           64 | elapsed time per iteration (ms): 31201.1 | throughput per GPU (TFLOP/s/GPU): 401.2 | energy per GPU (J/iter/GPU): 4012.3 | power per GPU (W/GPU): 612.0 | learning rate: 1.0E-06 | global batch size:    64 | lm loss: 1.1E+01 | mtp_1 loss: 1.1E+01 | seq_load_balancing_loss: 1.0E+00 | loss scale: 1.0 | grad norm: 2.1 | num zeros: 0 | params norm: 901.2 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2026-05-04 11:01:16.120101] iteration        2/   10000 | consumed samples:           128 | elapsed time per iteration (ms): 6551.3 | throughput per GPU (TFLOP/s/GPU): 401.2 | energy per GPU (J/iter/GPU): 4012.3 | power per GPU (W/GPU): 612.0 | learning rate: 1.0E-06 | global batch size:    64 | lm loss: 1.1E+01 | mtp_1 loss: 1.1E+01 | seq_load_balancing_loss: 1.0E+00 | loss scale: 1.0 | grad norm: 2.1 | num zeros: 0 | params norm: 901.2 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2026-05-04 11:01:23.120101] iteration        3/   10000 | consumed samples:           192 | elapsed time per iteration (ms): 6549.0 | throughput per GPU (TFLOP/s/GPU): 401.2 | energy per GPU (J/iter/GPU): 4012.3 | power per GPU (W/GPU): 612.0 | learning rate: 1.0E-06 | global batch size:    64 | lm loss: 1.1E+01 | mtp_1 loss: 1.1E+01 | seq_load_balancing_loss: 1.0E+00 | loss scale: 1.0 | grad norm: 2.1 | num zeros: 0 | params norm: 901.2 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        6.5513,
        1e-06,
    ),
    "megatron with sampled timers": (
        """\
 [2024-11-04 11:01:10] iteration        1/   10000 | consumed samples:           64 | elapsed time per iteration (ms): 31201.1 | learning rate: 1.0E-06 | global batch size:    64 | lm loss: 1.1E+01 | loss scale: 1.0 | grad norm: 2.1 | number of skipped iterations:   0 | number of nan iterations:   0 |
(min, max) time across ranks (ms):
    forward-backward ...............................: (5012.11, 5013.90)
    forward-compute ................................: (1500.12, 1600.40)
    backward-compute ...............................: (3100.12, 3200.40)
    optimizer ......................................: (190.12, 191.40)
 [2024-11-04 11:01:16] iteration        2/   10000 | consumed samples:           128 | elapsed time per iteration (ms): 6551.3 | learning rate: 1.0E-06 | global batch size:    64 | lm loss: 1.1E+01 | loss scale: 1.0 | grad norm: 2.1 | number of skipped iterations:   0 | number of nan iterations:   0 |
(min, max) time across ranks (ms):
    forward-backward ...............................: (5012.11, 5013.90)
    forward-compute ................................: (1500.12, 1600.40)
    backward-compute ...............................: (3100.12, 3200.40)
    optimizer ......................................: (190.12, 191.40)
 [2024-11-04 11:01:23] iteration        3/   10000 | consumed samples:           192 | elapsed time per iteration (ms): 6549.0 | learning rate: 1.0E-06 | global batch size:    64 | lm loss: 1.1E+01 | loss scale: 1.0 | grad norm: 2.1 | number of skipped iterations:   0 | number of nan iterations:   0 |
(min, max) time across ranks (ms):
    forward-backward ...............................: (5012.11, 5013.90)
    forward-compute ................................: (1500.12, 1600.40)
    backward-compute ...............................: (3100.12, 3200.40)
    optimizer ......................................: (190.12, 191.40)
""",
        "megatron",
        2,
        6.5513,
        1e-06,
    ),
    "kubectl stamps before megatron": (
        """\
2025-03-01T10:00:10.512345678Z  [2025-03-01 10:00:10] iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
2025-03-01T10:00:14.512345678Z  [2025-03-01 10:00:14] iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
2025-03-01T10:00:18.512345678Z  [2025-03-01 10:00:18] iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        4.021,
        1e-06,
    ),
    "srun labels before megatron": (
        """\
31: iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
31: iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
31: iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        4.021,
        1e-06,
    ),
    "json lines around megatron": (
        """\
{"log":" iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\\n","stream":"stdout","time":"2025-03-01T10:00:10.5Z"}
{"log":" iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\\n","stream":"stdout","time":"2025-03-01T10:00:14.5Z"}
{"log":" iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\\n","stream":"stdout","time":"2025-03-01T10:00:18.5Z"}
""",
        "megatron",
        2,
        4.021,
        1e-06,
    ),
    "hf 5 strings": (
        """\
  0%|          | 1/300 [00:05<27:24,  5.50s/it]
{'loss': '2.011', 'grad_norm': '1.9', 'learning_rate': '0', 'epoch': '0.003'}
  1%|          | 2/300 [00:09<23:20,  4.70s/it]
{'loss': '2.001', 'grad_norm': '1.8', 'learning_rate': '6.6e-07', 'epoch': '0.007'}
  1%|          | 3/300 [00:13<21:57,  4.44s/it]
{'loss': '1.981', 'grad_norm': '1.8', 'learning_rate': '1.3e-06', 'epoch': '0.010'}
""",
        "progress bar",
        2,
        4.13,
        0.3,
    ),
    "hf with checkpoints and evaluation": (
        """\
  3%|▎         | 99/3000 [04:57<2:25:03,  3.00s/it]
  3%|▎         | 100/3000 [05:00<2:25:00,  3.00s/it]
  0%|          | 0/25 [00:00<?, ?it/s]
  8%|▊         | 2/25 [00:00<00:05,  4.12it/s]
100%|██████████| 25/25 [00:07<00:00,  3.22it/s]
{'eval_loss': 1.02, 'eval_runtime': 7.9, 'eval_samples_per_second': 25.0, 'eval_steps_per_second': 3.2, 'epoch': 0.1}
[INFO|trainer.py:3503] 2024-03-03 10:00:00,000 >> Saving model checkpoint to out/checkpoint-100
  3%|▎         | 101/3000 [05:23<7:01:12,  8.72s/it]
  3%|▎         | 102/3000 [05:26<5:37:44,  6.99s/it]
  3%|▎         | 103/3000 [05:29<4:39:30,  5.79s/it]
""",
        "progress bar",
        100,
        3.0,
        0.2,
    ),
    "lightning on slurm, lines of all": (
        """\
Epoch 0:   0%|          | 1/2000 [00:08<4:37:12,  0.12it/s, v_num=551, train_loss=10.90]
Epoch 0:   0%|          | 2/2000 [00:11<3:11:30,  0.17it/s, v_num=551, train_loss=10.80]
Epoch 0:   0%|          | 3/2000 [00:15<2:49:10,  0.20it/s, v_num=551, train_loss=10.70]
""",
        "progress bar",
        2,
        3.4,
        1.5,
    ),
    "nanotron 2025 with units": (
        """\
[default0]:02/18/2025 17:40:30 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-100]: iteration: 1 / 100 | consumed_tokens: 131K | time_per_iteration_ms: 6.1K | tokens_per_sec: 21.5K | tokens_per_sec_per_gpu: 2.69K | global_batch_size: 64 | lm_loss: 12.1 | lr: 3e-05 | model_tflops_per_gpu: 91.2 | grad_norm: 4.1 | eta: 0:05:10
[default0]:02/18/2025 17:40:33 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-100]: iteration: 2 / 100 | consumed_tokens: 262K | time_per_iteration_ms: 3.12K | tokens_per_sec: 42K | tokens_per_sec_per_gpu: 5.25K | global_batch_size: 64 | lm_loss: 12.1 | lr: 3e-05 | model_tflops_per_gpu: 91.2 | grad_norm: 4.1 | eta: 0:05:10
[default0]:02/18/2025 17:40:36 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-100]: iteration: 3 / 100 | consumed_tokens: 393K | time_per_iteration_ms: 3.1K | tokens_per_sec: 42.3K | tokens_per_sec_per_gpu: 5.29K | global_batch_size: 64 | lm_loss: 12.1 | lr: 3e-05 | model_tflops_per_gpu: 91.2 | grad_norm: 4.1 | eta: 0:05:10
""",
        "nanotron",
        2,
        3.12,
        0.011,
    ),
    "gpt-neox 2": (
        """\
[2024-07-18 10:00:10,100] [INFO] [logging.py:96:log_dist] [Rank 0] step=1, skipped=0, lr=[1e-07, 1e-07], mom=[[0.9, 0.95], [0.9, 0.95]]
steps: 1 loss: 10.9841 iter time (s): 9.120 samples/sec: 7.018
%comms: 4.1\x20
 %optimizer_step 1.2\x20
 %forward: 20.1\x20
 %backward: 50.2
[2024-07-18 10:00:10,101] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | train_batch: 0.00 | batch_input: 5.10 | forward: 1001.20 | backward: 2010.10 | optimizer: 100.2
[2024-07-18 10:00:14,100] [INFO] [logging.py:96:log_dist] [Rank 0] step=2, skipped=0, lr=[1e-07, 1e-07], mom=[[0.9, 0.95], [0.9, 0.95]]
steps: 2 loss: 10.9841 iter time (s): 4.020 samples/sec: 15.920
%comms: 4.1\x20
 %optimizer_step 1.2\x20
 %forward: 20.1\x20
 %backward: 50.2
[2024-07-18 10:00:14,101] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | train_batch: 0.00 | batch_input: 5.10 | forward: 1001.20 | backward: 2010.10 | optimizer: 100.2
[2024-07-18 10:00:18,100] [INFO] [logging.py:96:log_dist] [Rank 0] step=3, skipped=0, lr=[1e-07, 1e-07], mom=[[0.9, 0.95], [0.9, 0.95]]
steps: 3 loss: 10.9841 iter time (s): 4.010 samples/sec: 15.960
%comms: 4.1\x20
 %optimizer_step 1.2\x20
 %forward: 20.1\x20
 %backward: 50.2
[2024-07-18 10:00:18,101] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | train_batch: 0.00 | batch_input: 5.10 | forward: 1001.20 | backward: 2010.10 | optimizer: 100.2
""",
        "pipeline engine",
        2,
        4.02,
        0.001,
    ),
    "megatron-deepspeed 2024": (
        """\
 iteration        1/   1000 | consumed samples:          64 | consumed tokens:       131072 | elapsed time per iteration (ms): 31201.1 | learning rate: 1.0E-06 | global batch size:    64 | lm loss: 1.1E+01 | moe loss: 1.0E-02 | loss scale: 65536.0 | grad norm: 2.1 | num zeros: 0.0 | actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 2.051 | tokens per gpu per second (tgs): 525.110 | TFLOPs: 71.20 |
 iteration        2/   1000 | consumed samples:          128 | consumed tokens:       262144 | elapsed time per iteration (ms): 6551.3 | learning rate: 1.0E-06 | global batch size:    64 | lm loss: 1.1E+01 | moe loss: 1.0E-02 | loss scale: 65536.0 | grad norm: 2.1 | num zeros: 0.0 | actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 9.769 | tokens per gpu per second (tgs): 2500.878 | TFLOPs: 71.20 |
 iteration        3/   1000 | consumed samples:          192 | consumed tokens:       393216 | elapsed time per iteration (ms): 6549.0 | learning rate: 1.0E-06 | global batch size:    64 | lm loss: 1.1E+01 | moe loss: 1.0E-02 | loss scale: 65536.0 | grad norm: 2.1 | num zeros: 0.0 | actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 9.772 | tokens per gpu per second (tgs): 2501.756 | TFLOPs: 71.20 |
""",
        "megatron",
        2,
        6.5513,
        1e-06,
    ),
    "composer console line": (
        """\
[epoch=0][batch=1/4800]:
\t Train time/epoch: 0
\t Train time/batch: 0
\t Train trainer/device_train_microbatch_size: 8
\t Train loss/train/total: 11.8
\t Train time/train: 0.0031
[epoch=0][batch=2/4800]:
\t Train time/batch: 1
\t Train loss/train/total: 11.7
\t Train throughput/batches_per_sec: 0.2020
\t Train throughput/samples_per_sec: 12.93
\t Train time/train: 0.0045
[epoch=0][batch=3/4800]:
\t Train time/batch: 2
\t Train loss/train/total: 11.6
\t Train throughput/batches_per_sec: 0.2021
\t Train throughput/samples_per_sec: 12.93
\t Train time/train: 0.0059
""",
        "composer",
        2,
        4.95,
        0.6,
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
    "deepspeed pipeline engine": (
        """\
steps: 10 loss: 2.31 iter time (s): 4.012 samples/sec: 15.952
steps: 20 loss: 2.11 iter time (s): 4.001 samples/sec: 15.996
steps: 30 loss: 2.02 iter time (s): 4.003 samples/sec: 15.988
""",
        "pipeline engine",
        20,
        4.001,
        0.001,
    ),
    "bridge with logger's prefix": (
        """\
0: INFO:megatron.bridge.training.utils.train_utils: [2026-02-11 09:00:10.210101] iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | throughput per GPU (TFLOP/s/GPU): 511.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
0: INFO:megatron.bridge.training.utils.train_utils: [2026-02-11 09:00:14.210101] iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | throughput per GPU (TFLOP/s/GPU): 511.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
0: INFO:megatron.bridge.training.utils.train_utils: [2026-02-11 09:00:18.210101] iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | throughput per GPU (TFLOP/s/GPU): 511.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        4.021,
        1e-06,
    ),
}
