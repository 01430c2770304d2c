"""Logs of working trainers from public threads and repositories: the third part of the later rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.thread_bar_logs import GoodLog

THIRD_ROUND_LOGS: Final[dict[str, GoodLog]] = {
    "hyperpod unknown length": (
        """\
[my-full-rank-sft-1] [2025-12-17 04:54:46,374] [INFO] Epoch 0: : 1it [00:05,  5.43s/it, v_num=d3c7, reduced_train_loss=0.774, global_step=0.000, consumed_samples=64.0, train_step_timing in s=5.370, batch_time=5.400, samples/sec=11.60]
[my-full-rank-sft-1] [2025-12-17 04:54:49,774] [INFO] Epoch 0: : 2it [00:08,  4.40s/it, v_num=d3c7, reduced_train_loss=0.674, global_step=1.000, consumed_samples=128.0, train_step_timing in s=3.370, batch_time=3.400, samples/sec=18.60]
[my-full-rank-sft-1] [2025-12-17 04:54:53,174] [INFO] Epoch 0: : 3it [00:12,  4.06s/it, v_num=d3c7, reduced_train_loss=0.644, global_step=2.000, consumed_samples=192.0, train_step_timing in s=3.360, batch_time=3.390, samples/sec=18.60]
""",
        "nemo",
        2,
        3.37,
        1e-06,
    ),
    "ray lightning unknown length": (
        """\
(RayTrainWorker pid=364, ip=10.0.0.218) Setting up process group for: env:// [rank=0, world_size=12]
(RayTrainWorker pid=364, ip=10.0.0.218) Epoch 0: : 1it [00:26, 26.64s/it, v_num=0, train_loss=13.00]
(RayTrainWorker pid=364, ip=10.0.0.218) Epoch 0: : 2it [00:46, 23.12s/it, v_num=0, train_loss=12.10]
(RayTrainWorker pid=364, ip=10.0.0.218) Epoch 0: : 3it [01:05, 21.93s/it, v_num=0, train_loss=11.62]
""",
        "progress bar",
        2,
        19.6,
        0.2,
    ),
    "lightning colab with validation": (
        """\
Sanity Checking DataLoader 0: 100% 2/2 [00:01<00:00,  1.96it/s]
Epoch 0:   2% 10/638 [00:25<26:47,  2.56s/it, v_num=skpv, train/loss_step=2.971, train/pose_step=0.534]
Epoch 0:   3% 20/638 [00:48<24:49,  2.41s/it, v_num=skpv, train/loss_step=2.271, train/pose_step=0.534]
Validation DataLoader 0:  65% 40/62 [01:18<00:43,  1.96s/it]
Validation DataLoader 0: 100% 62/62 [02:01<00:00,  1.96s/it]
""",
        "progress bar",
        20,
        2.26,
        0.05,
    ),
    "lightning slow rate": (
        """\
Epoch 0:   1%|          | 1/115 [00:03<05:45,  0.33it/s, v_num=0, train/loss_step=12.90]
Epoch 0:   2%|▏         | 2/115 [00:05<05:14,  0.36it/s, v_num=0, train/loss_step=11.90]
Epoch 0:   3%|▎         | 3/115 [00:08<05:03,  0.37it/s, v_num=0, train/loss_step=11.20]
""",
        "progress bar",
        2,
        2.5,
        0.5,
    ),
    "neuronx bar in another encoding": (
        """\
Epoch 0:   2%|â–         | 1/62 [01:00<1:01:40,  0.02it/s, v_num=8-06, reduced_train_loss=10.90, lr=3e-7, throughput=0.9]
Epoch 0:   3%|â–Ž         | 2/62 [01:59<59:56,  0.02it/s, v_num=8-06, reduced_train_loss=10.80, lr=3e-7, throughput=0.9]
Epoch 0:   5%|â–         | 3/62 [02:59<58:44,  0.02it/s, v_num=8-06, reduced_train_loss=10.30, lr=3e-7, throughput=0.9]
""",
        "progress bar",
        2,
        60,
        2,
    ),
    "deepspeed 0.7 timer": (
        """\
[2022-08-29 06:58:56,121] [INFO] [logging.py:68:log_dist] [Rank 0] step=20, skipped=17, lr=[5e-05], mom=[(0.9, 0.999)]
[2022-08-29 06:58:56,176] [INFO] [timer.py:198:stop] 0/20, RunningAvgSamplesPerSec=29.7340551694273, CurrSamplesPerSec=28.48090316379353, MemAllocated=0.36GB, MaxMemAllocated=15.06GB
[2022-08-29 06:59:18,633] [INFO] [logging.py:68:log_dist] [Rank 0] step=30, skipped=17, lr=[5e-05], mom=[(0.9, 0.999)]
[2022-08-29 06:59:18,687] [INFO] [timer.py:198:stop] 0/30, RunningAvgSamplesPerSec=29.2135, CurrSamplesPerSec=28.45, MemAllocated=0.36GB, MaxMemAllocated=15.06GB
""",
        "throughput timer",
        30,
        2.249560633,
        0.05,
    ),
    "deepspeed loss scale falling": (
        """\
[2023-11-07 01:55:08,040] [INFO] [logging.py:96:log_dist] [Rank 0] Overflow detected. Skipping step. Attempted loss scale: 8192.0, reducing to 4096.0
[2023-11-07 01:55:23,711] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=4, lr=[4.99804827338393e-05, 4.99804827338393e-05], mom=[(0.9, 0.95), (0.9, 0.95)]
[2023-11-07 01:55:23,714] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=25.025771473496132, CurrSamplesPerSec=25.704280480541442, MemAllocated=4.32GB, MaxMemAllocated=38.49GB
[2023-11-07 01:55:48,611] [INFO] [logging.py:96:log_dist] [Rank 0] step=20, skipped=4, lr=[4.9e-05, 4.9e-05], mom=[(0.9, 0.95), (0.9, 0.95)]
[2023-11-07 01:55:48,614] [INFO] [timer.py:260:stop] epoch=0/micro_step=80/global_step=20, RunningAvgSamplesPerSec=25.6, CurrSamplesPerSec=25.71, MemAllocated=4.32GB, MaxMemAllocated=38.49GB
""",
        "throughput timer",
        20,
        2.489303773,
        0.02,
    ),
    "torchtitan, all ranks and no rank's name": (
        """\
[titan] 2026-02-24 19:46:15,870 - root - INFO - step:  3  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,044  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:15,870 - root - INFO - step:  3  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,044  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:15,870 - root - INFO - step:  3  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,043  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,049  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:19,145 - root - INFO - step:  5  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,007  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:19,145 - root - INFO - step:  5  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,007  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:19,145 - root - INFO - step:  5  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,008  tflops: 314.71  mfu: 13.99%
""",
        "torchtitan",
        4,
        1.630248756,
        0.001,
    ),
    "torchtitan gc and profiler": (
        """\
[rank0]:[titan] 2025-06-16 22:30:48,735 - root - INFO - [GC] Peforming periodical GC collection. 0.06 seconds.
[rank0]:[titan] 2025-06-16 22:30:50,322 - root - INFO - step: 200  loss:  6.1384  memory: 49.66GiB(52.28%)  tps: 11,712  tflops: 339.16  mfu: 34.29%
[rank0]:[titan] 2025-06-16 22:30:50,758 - root - INFO - Dumping profiler traces at step 200
[rank0]:[titan] 2025-06-16 22:30:50,976 - root - INFO - Finished dumping profiler traces in 0.22 seconds
[rank0]:[titan] 2025-06-16 22:31:04,970 - root - INFO - step: 210  loss:  6.0388  memory: 49.66GiB(52.28%)  tps: 11,186  tflops: 323.92  mfu: 32.75%
[rank0]:[titan] 2025-06-16 22:31:18,934 - root - INFO - step: 220  loss:  6.0348  memory: 49.66GiB(52.28%)  tps: 11,736  tflops: 339.82  mfu: 34.36%
""",
        "torchtitan",
        210,
        1.464688003,
        0.001,
    ),
    "llm-shearing composer": (
        """\
[batch=366/48000]:
         Train time/batch: 365
         Train time/sample: 93440
         Train time/token: 382730240
         Train memory/peak_reserved_mem: 51.3280
         Train trainer/device_train_microbatch_size: 16
         Train loss/train/total: 10.3750
         Train metrics/train/LanguageCrossEntropy: 10.3750
         Train throughput/batches_per_sec: 0.2481
         Train time/train: 0.6510
[batch=367/48000]:
         Train time/batch: 366
         Train time/sample: 93696
         Train time/token: 383778816
         Train loss/train/total: 10.2500
         Train throughput/batches_per_sec: 0.2482
         Train time/train: 0.6521
[batch=368/48000]:
         Train time/batch: 367
         Train loss/train/total: 10.2450
         Train throughput/batches_per_sec: 0.2481
         Train time/train: 0.6532
""",
        "composer",
        367,
        4.0,
        0.45,
    ),
    "nemo 2 console, bionemo": (
        """\
Training epoch 0, iteration 120/149 | lr: 3e-05 | consumed_samples: 121 | global_batch_size: 1 | global_step: 120 | reduced_train_loss: 1.233 | train_step_timing in s: 0.03146 | val_loss: 4.106
Training epoch 0, iteration 121/149 | lr: 3e-05 | consumed_samples: 122 | global_batch_size: 1 | global_step: 121 | reduced_train_loss: 1.288 | train_step_timing in s: 0.03163 | val_loss: 4.106
Training epoch 0, iteration 122/149 | lr: 3e-05 | consumed_samples: 123 | global_batch_size: 1 | global_step: 122 | reduced_train_loss: 1.333 | train_step_timing in s: 0.03215 | val_loss: 4.106
""",
        "nemo",
        121,
        0.03163,
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
    "sft steps with postfix": (
        """\
Training:  10%|▉         | 498/5000 [06:27<57:41, 1.30it/s, loss=1.0931, dt(ms)=762.26]
Training:  10%|▉         | 499/5000 [06:28<57:41, 1.30it/s, loss=1.0911, dt(ms)=768.26]
Training:  10%|█         | 500/5000 [06:29<57:41, 1.30it/s, loss=1.0921, dt(ms)=769.26]
""",
        "progress bar",
        499,
        0.77,
        0.05,
    ),
    "openrlhf": (
        """\
Train epoch:   0%|          | 0/1 [00:00<?, ?it/s]
Train step of epoch 0:   0%|          | 0/1000 [00:00<?, ?it/s]
Train step of epoch 0:   0%|          | 1/1000 [00:09<2:34:07,  9.26s/it, gpt_loss=1.21, loss_mean=1.21, lr=1e-8]
Train step of epoch 0:   0%|          | 2/1000 [00:15<2:04:41,  7.50s/it, gpt_loss=1.20, loss_mean=1.21, lr=2e-8]
Train step of epoch 0:   0%|          | 3/1000 [00:21<1:54:05,  6.87s/it, gpt_loss=1.19, loss_mean=1.20, lr=3e-8]
""",
        "progress bar",
        2,
        6.2,
        0.3,
    ),
    "diffusers": (
        """\
Steps:   0%|          | 1/1000 [00:04<1:12:30,  4.36s/it, loss=0.0311, lr=0.0001]
Steps:   0%|          | 2/1000 [00:05<43:44,  2.63s/it, loss=0.0311, lr=0.0001]
Steps:   0%|          | 3/1000 [00:07<34:10,  2.06s/it, loss=0.0211, lr=0.0001]
""",
        "progress bar",
        2,
        1.4,
        0.2,
    ),
    "nanotron under torchrun's redirect": (
        """\
[default0]:07/06/2024 15:49:30 [INFO|DP=0|PP=0|TP=0|ip-26-0-161-221]: iteration: 1 / 20 | consumed_tokens: 0.131M | elapsed_time_per_iteration_ms: 25.1K | tokens_per_sec: 5.22K | tokens_per_sec_per_gpu: 653 | global_batch_size: 64 | lm_loss: 11.3 | lr: 0.0001 | model_tflops_per_gpu: 9.33 | hardware_tflops_per_gpu: 9.33 | grad_norm: 25.3 | cuda_memory_allocated: 1.35G | cuda_max_memory_reserved: 3.86G | hd_total_memory_tb: 312G | hd_used_memory_tb: 65.6G | hd_free_memory_tb: 246G
[default0]:07/06/2024 15:49:34 [INFO|DP=0|PP=0|TP=0|ip-26-0-161-221]: iteration: 2 / 20 | consumed_tokens: 0.262M | elapsed_time_per_iteration_ms: 4.02K | tokens_per_sec: 32.6K | tokens_per_sec_per_gpu: 4.08K | global_batch_size: 64 | lm_loss: 11.3 | lr: 0.0001 | model_tflops_per_gpu: 9.33 | hardware_tflops_per_gpu: 9.33 | grad_norm: 25.3 | cuda_memory_allocated: 1.35G | cuda_max_memory_reserved: 3.86G | hd_total_memory_tb: 312G | hd_used_memory_tb: 65.6G | hd_free_memory_tb: 246G
[default0]:07/06/2024 15:49:38 [INFO|DP=0|PP=0|TP=0|ip-26-0-161-221]: iteration: 3 / 20 | consumed_tokens: 0.393M | elapsed_time_per_iteration_ms: 3.98K | tokens_per_sec: 32.9K | tokens_per_sec_per_gpu: 4.12K | global_batch_size: 64 | lm_loss: 11.3 | lr: 0.0001 | model_tflops_per_gpu: 9.33 | hardware_tflops_per_gpu: 9.33 | grad_norm: 25.3 | cuda_memory_allocated: 1.35G | cuda_max_memory_reserved: 3.86G | hd_total_memory_tb: 312G | hd_used_memory_tb: 65.6G | hd_free_memory_tb: 246G
""",
        "nanotron",
        2,
        4.02,
        0.011,
    ),
    "axolotl 2025": (
        """\
[2025-09-03 11:02:12,104] [INFO] [axolotl.utils.samplers.multipack:412] [PID:812] [RANK:0] gather_len_batches: [174, 174]
  1%|          | 1/174 [00:07<21:37,  7.50s/it]
{'loss': 1.4, 'grad_norm': 0.39, 'learning_rate': 2e-05, 'memory/max_mem_active(gib)': 21.32, 'memory/max_mem_allocated(gib)': 21.32, 'memory/device_mem_reserved(gib)': 23.9, 'tokens_per_second_per_gpu': 3020.11, 'epoch': 0.01}
  1%|          | 2/174 [00:12<17:51,  6.23s/it]
  2%|▏         | 3/174 [00:17<16:10,  5.67s/it]
""",
        "progress bar",
        2,
        5.3,
        0.3,
    ),
    "llama-factory console": (
        """\
[INFO|trainer.py:2414] 2025-01-03 12:00:00,123 >> ***** Running training *****
[INFO|trainer.py:2420] 2025-01-03 12:00:00,123 >>   Total optimization steps = 93
  1%|          | 1/93 [00:11<17:01, 11.10s/it]
  2%|▏         | 2/93 [00:21<16:04, 10.60s/it]
[INFO|2025-01-03 12:00:33] llamafactory.train.callbacks:143 >> {'loss': 1.3012, 'learning_rate': 5.0000e-06, 'epoch': 0.02, 'throughput': 2330.41}
{'loss': 1.3012, 'grad_norm': 1.2, 'learning_rate': 5e-06, 'epoch': 0.02, 'num_input_tokens_seen': 24576}
  3%|▎         | 3/93 [00:31<15:40, 10.45s/it]
""",
        "progress bar",
        2,
        10.2,
        0.3,
    ),
    "bridge 2025 with step time lines": (
        """\
Step Time : 43.78s GPU utilization: 154.1 TFLOP/s/GPU
 [2025-08-13 12:52:07] iteration        1/      50 | consumed samples:           64 | elapsed time per iteration (ms): 43781.0 | learning rate: 3.0E-06 | global batch size:    64 | lm loss: 1.2E+01 | loss scale: 1.0 | grad norm: 0.704 | number of skipped iterations:   0 | number of nan iterations:   0 |
[Rank 0] (after 1 iterations) memory (MB) | allocated: 11908.05029296875 | max allocated: 12712.43603515625 | reserved: 12954.0 | max reserved: 12954.0
Step Time : 12.78s GPU utilization: 528.1 TFLOP/s/GPU
 [2025-08-13 12:52:20] iteration        2/      50 | consumed samples:          128 | elapsed time per iteration (ms): 12780.6 | learning rate: 6.0E-06 | global batch size:    64 | lm loss: 1.1E+01 | loss scale: 1.0 | grad norm: 0.704 | number of skipped iterations:   0 | number of nan iterations:   0 |
Step Time : 12.80s GPU utilization: 527.1 TFLOP/s/GPU
 [2025-08-13 12:52:33] iteration        3/      50 | consumed samples:          192 | elapsed time per iteration (ms): 12800.1 | learning rate: 6.0E-06 | global batch size:    64 | lm loss: 1.1E+01 | loss scale: 1.0 | grad norm: 0.704 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        12.7806,
        1e-06,
    ),
    "olmo-core with an eta": (
        """\
2025-07-01 10:00:04.120\tgpu-3:0\tolmo_core.train.callbacks.console_logger:62\tINFO\t[step=1/119209,epoch=1,eta=2 days, 3:00:00]
    optim/LR (group 0)=1.000E-06
    throughput/device/TPS (actual avg)=0.0
    train/CE loss=11.03
2025-07-01 10:00:06.110\tgpu-3:0\tolmo_core.train.callbacks.console_logger:62\tINFO\t[step=2/119209,epoch=1,eta=2 days, 3:00:00]
    optim/LR (group 0)=1.000E-06
    throughput/device/BPS=0.5025
    throughput/device/BPS (actual avg)=0.5021
    throughput/device/TPS=8,233
    train/CE loss=11.01
2025-07-01 10:00:08.100\tgpu-3:0\tolmo_core.train.callbacks.console_logger:62\tINFO\t[step=3/119209,epoch=1,eta=22:11:40]
    throughput/device/BPS=0.5028
    train/CE loss=10.93
""",
        "olmo-core",
        2,
        1.990049751,
        0.02,
    ),
}
