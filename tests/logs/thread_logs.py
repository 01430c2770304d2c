"""Logs of working trainers as users pasted them into public threads from 2020 to 2026: whatever launcher, logger and
progress bar stood between the trainer and the file. Written by hand in that format, with figures of their own."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.round_logs import ROUND_LOGS
from tests.logs.thread_bar_logs import BAR_LOGS, GoodLog

GOOD_LOGS: Final[dict[str, GoodLog]] = {
    "megatron, resumed": (
        """\
 iteration      122/  250000 | consumed samples:       124928 | elapsed time per iteration (ms): 46545.2 | learning rate: 9.150E-06 | global batch size:  1024 | lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm: 0.231 | number of skipped iterations:   0 | number of nan iterations:   0 |
 iteration      123/  250000 | consumed samples:       125952 | elapsed time per iteration (ms): 37871.6 | learning rate: 9.225E-06 | global batch size:  1024 | lm loss: 2.493043E+00 | loss scale: 1.0 | grad norm: 0.236 | number of skipped iterations:   0 | number of nan iterations:   0 |
 iteration      124/  250000 | consumed samples:       126976 | elapsed time per iteration (ms): 37474.8 | learning rate: 9.300E-06 | global batch size:  1024 | lm loss: 2.559583E+00 | loss scale: 1.0 | grad norm: 0.242 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        123,
        37.8716,
        0.0,
    ),
    "megatron, every hundredth": (
        """\
 iteration      100/  500000 | consumed samples:        25600 | elapsed time per iteration (ms): 3320.1 | learning rate: 3.320E-05 | global batch size:   256 | lm loss: 1.104719E+01 | loss scale: 65536.0 | grad norm: 3.903 | number of skipped iterations:  17 | number of nan iterations:   0 |
 iteration      200/  500000 | consumed samples:        51200 | elapsed time per iteration (ms): 3270.8 | learning rate: 7.320E-05 | global batch size:   256 | lm loss: 7.803114E+00 | loss scale: 65536.0 | grad norm: 2.887 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        200,
        3.2708,
        0.0,
    ),
    "megatron under mpirun --tag-output": (
        """\
[1,0]<stdout>:[before the start of training step] datetime: 2024-05-04 10:00:00
[1,15]<stdout>: [2024-05-04 10:00:09] iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9120.4 | throughput per GPU (TFLOP/s/GPU): 61.3 | learning rate: 1.000000E-06 | global batch size:    64 | lm loss: 1.083E+01 | loss scale: 1.0 | grad norm: 12.3 | number of skipped iterations:   0 | number of nan iterations:   0 |
[1,3]<stdout>:worker-0:25:584 [4] NCCL INFO comm 0x55f18f7772c0 rank 3 nranks 16 cudaDev 4 busId 97000 - Init COMPLETE
[1,15]<stdout>: [2024-05-04 10:00:11] iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 2120.4 | throughput per GPU (TFLOP/s/GPU): 263.4 | learning rate: 2.000000E-06 | global batch size:    64 | lm loss: 1.082E+01 | loss scale: 1.0 | grad norm: 12.1 | number of skipped iterations:   0 | number of nan iterations:   0 |
[1,15]<stdout>: [2024-05-04 10:00:13] iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 2118.0 | throughput per GPU (TFLOP/s/GPU): 263.7 | learning rate: 3.000000E-06 | global batch size:    64 | lm loss: 1.080E+01 | loss scale: 1.0 | grad norm: 11.9 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        2.1204,
        0.0,
    ),
    "megatron core 2026, experts, torchrun --tee": (
        """\
[default0]:Number of parameters in transformer block in billions:  6.98
[default7]: [2026-04-09 08:15:10.118273] iteration        1/      50 | consumed samples:          256 | elapsed time per iteration (ms): 41873.1 | throughput per GPU (TFLOP/s/GPU): 48.2 | learning rate: 1.200000E-06 | global batch size:   256 | lm loss: 1.189E+01 | load_balancing_loss: 1.037E+00 | z_loss: 2.110E-01 | loss scale: 1.0 | grad norm: 5.310 | num zeros: 0 | number of skipped iterations:   0 | number of nan iterations:   0 |
[default0]:[Rank 0] (after 1 iterations) memory (MB) | allocated: 40121.50 | max allocated: 61200.25 | reserved: 66110.00 | max reserved: 66110.00
[default7]: [2026-04-09 08:15:15.239001] iteration        2/      50 | consumed samples:          512 | elapsed time per iteration (ms): 5120.3 | throughput per GPU (TFLOP/s/GPU): 394.2 | learning rate: 2.400000E-06 | global batch size:   256 | lm loss: 1.188E+01 | load_balancing_loss: 1.036E+00 | z_loss: 2.108E-01 | loss scale: 1.0 | grad norm: 5.299 | num zeros: 0 | number of skipped iterations:   0 | number of nan iterations:   0 |
[default7]: [2026-04-09 08:15:20.351777] iteration        3/      50 | consumed samples:          768 | elapsed time per iteration (ms): 5112.6 | throughput per GPU (TFLOP/s/GPU): 394.8 | learning rate: 3.600000E-06 | global batch size:   256 | lm loss: 1.185E+01 | load_balancing_loss: 1.035E+00 | z_loss: 2.104E-01 | loss scale: 1.0 | grad norm: 5.270 | num zeros: 0 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        5.1203,
        0.0,
    ),
    "megatron-bridge, step time and utilization below": (
        """\
 [2025-10-02 22:52:07] iteration        1/      50 | consumed samples:          512 | elapsed time per iteration (ms): 53212.7 | learning rate: 3.000000E-05 | global batch size:   512 | lm loss: 1.174437E+01 | loss scale: 1.0 | grad norm: 9.704 | number of skipped iterations:   0 | number of nan iterations:   0 |
[Rank 0] (after 1 iterations) memory (MB) | allocated: 11908.05029296875 | max allocated: 12712.43603515625 | reserved: 12954.0 | max reserved: 12954.0
Step Time : 53.21s GPU utilization: 15.6TFLOP/s/GPU
 [2025-10-02 22:52:21] iteration        2/      50 | consumed samples:         1024 | elapsed time per iteration (ms): 14260.3 | learning rate: 6.000000E-05 | global batch size:   512 | lm loss: 1.097448E+01 | loss scale: 1.0 | grad norm: 8.170 | number of skipped iterations:   0 | number of nan iterations:   0 |
Step Time : 14.26s GPU utilization: 58.2TFLOP/s/GPU
""",
        "megatron",
        2,
        14.2603,
        0.0,
    ),
    "megatron-deepspeed 2023": (
        """\
[2023-08-08 14:29:00,841] [INFO] [logging.py:96:log_dist] [Rank 0] step=1, skipped=0, lr=[1.5e-07, 1.5e-07], mom=[(0.9, 0.95), (0.9, 0.95)]
steps: 1 loss: 12.6199 iter time (s): 5.400 samples/sec: 47.411
[Rank 1] (after 1 iterations) memory (MB) | allocated: 882.568359375 | max allocated: 13808.224609375 | reserved: 14718.0 | max reserved: 14718.0
[Rank 0] (after 1 iterations) memory (MB) | allocated: 882.568359375 | max allocated: 13808.224609375 | reserved: 14718.0 | max reserved: 14718.0
[2023-08-08 14:29:03,915] [INFO] [logging.py:96:log_dist] [Rank 0] step=2, skipped=0, lr=[3e-07, 3e-07], mom=[(0.9, 0.95), (0.9, 0.95)]
steps: 2 loss: 12.6157 iter time (s): 2.673 samples/sec: 95.775
[2023-08-08 14:29:06,714] [INFO] [logging.py:96:log_dist] [Rank 0] step=3, skipped=0, lr=[4.5e-07, 4.5e-07], mom=[(0.9, 0.95), (0.9, 0.95)]
steps: 3 loss: 12.6031 iter time (s): 2.671 samples/sec: 95.841
""",
        "pipeline engine",
        2,
        2.673,
        0.0,
    ),
    "gpt-neox with DeepSpeed's timers, resumed": (
        """\
[2023-07-25 21:03:17,269] [INFO] [timer.py:215:stop] epoch=0/micro_step=34/global_step=34, RunningAvgSamplesPerSec=7.864669709950182, CurrSamplesPerSec=8.00912418308922, MemAllocated=59.65GB, MaxMemAllocated=63.31GB
[2023-07-25 21:03:17,269] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | forward_microstep: 652.42 | backward_microstep: 2164.53 | backward_inner_microstep: 2001.89 | backward_allreduce_microstep: 162.60 | step_microstep: 1172.13
[2023-07-25 21:03:17,269] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | forward: 652.41 | backward: 2164.52 | backward_inner: 2001.89 | backward_allreduce: 162.60 | step: 1172.13
 samples/sec: 7.799 | iteration       34/   10000 | elapsed time per iteration (ms): 4103.1 | learning rate: 2.111E-06 | approx flops per GPU: 112.9TFLOPS | lm_loss: 1.118665E+01 | number of skipped iterations:   0 | number of nan iterations:   0 |
time (ms) | forward: 659.86 | backward: 2164.69 | backward-backward: 2164.66 | backward-allreduce: 0.00 | optimizer: 1172.51 | batch generator: 0.83
[2023-07-25 21:03:21,492] [INFO] [timer.py:215:stop] epoch=0/micro_step=35/global_step=35, RunningAvgSamplesPerSec=7.86, CurrSamplesPerSec=8.02, MemAllocated=59.65GB, MaxMemAllocated=63.31GB
 samples/sec: 7.812 | iteration       35/   10000 | elapsed time per iteration (ms): 4096.4 | learning rate: 2.173E-06 | approx flops per GPU: 113.1TFLOPS | lm_loss: 1.117201E+01 | number of skipped iterations:   0 | number of nan iterations:   0 |
time (ms) | forward: 655.10 | backward: 2161.02 | backward-backward: 2160.99 | backward-allreduce: 0.00 | optimizer: 1170.00 | batch generator: 0.81
""",
        "megatron",
        35,
        4.0964,
        0.0,
    ),
    "gpt-neox through pdsh": (
        """\
gpu250: [2023-07-05 15:08:30,157] [INFO] [engine.py:138:__init__] RANK=0 STAGE=0 LAYERS=13 [0, 13) STAGE_PARAMS=2646199296 (2646.199M)
gpu273: [2023-07-05 15:08:30,157] [INFO] [engine.py:138:__init__] RANK=8 STAGE=2 LAYERS=12 [25, 37) STAGE_PARAMS=2718609408 (2718.609M)
gpu250: steps: 1 loss: 10.9103 iter time (s): 31.020 samples/sec: 30.948
gpu273:  samples/sec: 30.948 | iteration        1/  150000 | elapsed time per iteration (ms): 31020.2 | learning rate: 0.000E+00 | approx flops per GPU: 39.8TFLOPS | lm_loss: 1.091E+01 | loss scale: 4096.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
gpu250: steps: 2 loss: 10.9011 iter time (s): 21.498 samples/sec: 44.655
gpu273:  samples/sec: 44.655 | iteration        2/  150000 | elapsed time per iteration (ms): 21498.0 | learning rate: 3.200E-08 | approx flops per GPU: 57.4TFLOPS | lm_loss: 1.090E+01 | loss scale: 4096.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        21.498,
        0.0,
    ),
    "nanotron 2025, resumed": (
        """\
10/18/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 19.5K | tokens_per_sec: 13.4K | tokens_per_sec_per_gpu: 6.7K | global_batch_size: 64 | lm_loss: 2.38 | lr: 1e-05 | model_tflops_per_gpu: 22.3 | hardware_tflops_per_gpu: 22.3 | grad_norm: 1.25
10/18/2025 16:32:07 [INFO|DP=0|PP=0|TP=0]: iteration: 327282 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K | global_batch_size: 64 | lm_loss: 2.35 | lr: 1e-05 | model_tflops_per_gpu: 38.3 | hardware_tflops_per_gpu: 38.3 | grad_norm: 1.22
10/18/2025 16:32:19 [INFO|DP=0|PP=0|TP=0]: iteration: 327283 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K | global_batch_size: 64 | lm_loss: 2.51 | lr: 1e-05 | model_tflops_per_gpu: 38.3 | hardware_tflops_per_gpu: 38.3 | grad_norm: 1.21
""",
        "nanotron",
        327282,
        11.5,
        0.0,
    ),
    "nanotron 2024, with the host's name": (
        """\
01/17/2024 13:47:27 [INFO|DP=0|PP=0|TP=0|ip-10-0-160-225]: iteration: 1 / 1000 | consumed_tokens: 640 | elapsed_time_per_iteration_ms: 451 | tokens_per_sec: 1.42K | tokens_per_sec_per_gpu: 178 | global_batch_size: 20 | lm_loss: 10.6 | lr: 1e-05 | model_tflops_per_gpu: 0.00087 | hardware_tflops_per_gpu: 0.00087 | grad_norm: 0.515 | cuda_memory_allocated: 75.2M | cuda_max_memory_reserved: 547M | hd_total_memory_tb: 312G | hd_used_memory_tb: 61.8G | hd_free_memory_tb: 250G
01/17/2024 13:47:27 [INFO|DP=0|PP=0|TP=0|ip-10-0-160-225]: iteration: 2 / 1000 | consumed_tokens: 1.28K | elapsed_time_per_iteration_ms: 41.2 | tokens_per_sec: 15.5K | tokens_per_sec_per_gpu: 1.94K | global_batch_size: 20 | lm_loss: 10.6 | lr: 1e-05 | model_tflops_per_gpu: 0.0095 | hardware_tflops_per_gpu: 0.00951 | grad_norm: 0.507
01/17/2024 13:47:27 [INFO|DP=0|PP=0|TP=0|ip-10-0-160-225]: iteration: 3 / 1000 | consumed_tokens: 1.92K | elapsed_time_per_iteration_ms: 39.4 | tokens_per_sec: 16.2K | tokens_per_sec_per_gpu: 2.03K | global_batch_size: 20 | lm_loss: 10.6 | lr: 1e-05 | model_tflops_per_gpu: 0.00992 | hardware_tflops_per_gpu: 0.00992 | grad_norm: 0.514
""",
        "nanotron",
        2,
        0.0412,
        0.0,
    ),
    "torchtitan 2026, all ranks without a label": (
        """\
[titan] 2026-02-24 19:46:15,860 - root - INFO - step:  3  loss:  8.11090  grad_norm: 21.1250  memory: 66.91GiB(37.51%)  tps: 4,020  tflops: 125.92  mfu: 5.60%
[titan] 2026-02-24 19:46:15,860 - root - INFO - step:  3  loss:  8.11090  grad_norm: 21.1250  memory: 66.91GiB(37.51%)  tps: 4,021  tflops: 125.93  mfu: 5.60%
[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,049  tflops: 314.68  mfu: 13.99%
[titan] 2026-02-24 19:46:19,145 - root - INFO - step:  5  loss:  7.07623  grad_norm: 46.5000  memory: 66.91GiB(37.51%)  tps: 10,007  tflops: 313.36  mfu: 13.93%
[titan] 2026-02-24 19:46:19,145 - root - INFO - step:  5  loss:  7.07623  grad_norm: 46.5000  memory: 66.91GiB(37.51%)  tps: 10,007  tflops: 313.36  mfu: 13.93%
""",
        "torchtitan",
        4,
        64 * 2048 / (8 * 10049),
        0.0,
    ),
    "torchtitan on CPUs, through srun --label": (
        """\
0: [rank0]:[titan] 2025-07-21 15:57:40,700 - root - INFO - Trainer is initialized with local batch size 8, global batch size 64, gradient accumulation steps 1, sequence length 2048, total steps 10 (warmup 2)
0: [rank0]:[titan] 2025-07-21 15:57:41,300 - root - INFO - step:  1  loss:  8.1392  grad_norm:  1.4422  memory:  0.00GiB(0.00%)  tps: 3,768  tflops: 0.35  mfu: 0.03%
0: [rank0]:[titan] 2025-07-21 15:57:42,774 - root - INFO - step:  2  loss:  7.9925  grad_norm:  2.6422  memory:  0.00GiB(0.00%)  tps: 30,768  tflops: 3.15  mfu: 0.32%
0: [rank0]:[titan] 2025-07-21 15:57:43,242 - root - INFO - step:  3  loss:  7.6671  grad_norm:  2.5457  memory:  0.00GiB(0.00%)  tps: 31,051  tflops: 3.19  mfu: 0.32%
""",
        "torchtitan",
        2,
        64 * 2048 / (8 * 30768),
        0.0,
    ),
    "torchtitan in colours, among warnings": (
        "[rank0]:[titan] 2025-03-12 11:10:20,100 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss:  8.2250  \x1b[36mmemory:  1.41GiB(1.79%)  \x1b[34mtps: 13,831  \x1b[36mtflops: 1.36  \x1b[35mmfu: 0.13%\x1b[39m\n"
        "[rank0]:[titan] 2025-03-12 11:10:21,603 - root - WARNING - Dataset c4_test is being re-looped\n"
        "[rank0]:[titan] 2025-03-12 11:10:21,667 - root - INFO - \x1b[31mstep:  2  \x1b[32mloss:  8.1861  \x1b[36mmemory:  1.41GiB(1.79%)  \x1b[34mtps: 209,645  \x1b[36mtflops: 19.86  \x1b[35mmfu: 2.01%\x1b[39m\n"
        "[rank0]:[titan] 2025-03-12 11:10:21,751 - root - INFO - \x1b[31mstep:  3  \x1b[32mloss:  8.1657  \x1b[36mmemory:  1.41GiB(1.79%)  \x1b[34mtps: 197,367  \x1b[36mtflops: 18.69  \x1b[35mmfu: 1.89%\x1b[39m\n",
        "torchtitan",
        2,
        64 * 2048 / (8 * 209645),
        0.0,
    ),
    "nemo 2 with a validation loss, through srun --label": (
        """\
0: Training epoch 0, iteration 0/149 | lr: 0 | global_batch_size: 1 | global_step: 0 | reduced_train_loss: 3.233 | train_step_timing in s: 2.146
0: Training epoch 0, iteration 1/149 | lr: 3e-07 | consumed_samples: 2 | global_batch_size: 1 | global_step: 1 | reduced_train_loss: 3.288 | train_step_timing in s: 0.03163 | val_loss: 4.106
0: Training epoch 0, iteration 2/149 | lr: 6e-07 | consumed_samples: 3 | global_batch_size: 1 | global_step: 2 | reduced_train_loss: 3.333 | train_step_timing in s: 0.03215 | val_loss: 4.106
""",
        "nemo",
        1,
        0.03163,
        0.0,
    ),
    "nemo 1 without step times": (
        """\
[NeMo W 2023-04-19 21:40:25 experimental:27] Module <class 'nemo.collections.asr.modules.audio_modules.SpectrogramToMultichannelFeatures'> is experimental, not ready for production and is not fully supported. Use at your own risk.
Epoch 0:   1%|          | 795/77225 [9:07:58<878:01:48, 41.36s/it, loss=3.1, v_num=, reduced_train_loss=3.090, global_step=794.0, consumed_samples=1.63e+6]
Epoch 0:   1%|          | 796/77225 [9:08:39<878:00:10, 41.36s/it, loss=3.1, v_num=, reduced_train_loss=3.110, global_step=795.0, consumed_samples=1.63e+6]
Epoch 0:   1%|          | 797/77225 [9:09:20<877:59:30, 41.36s/it, loss=3.1, v_num=, reduced_train_loss=3.080, global_step=796.0, consumed_samples=1.63e+6]
""",
        "progress bar",
        796,
        41.0,
        1.5,
    ),
    "composer 0.12, memory in bytes": (
        """\
[batch=11/4800]:
         Train trainer/global_step: 10
         Train memory/reserved_mem: 40017854464
         Train loss/train/total: 9.6010
         Train wall_clock/train: 36.0000
         Train throughput/batches_per_sec: 0.3258
         Train throughput/samples_per_sec: 83.3991
[batch=12/4800]:
         Train trainer/global_step: 11
         Train memory/reserved_mem: 40017854464
         Train loss/train/total: 9.5237
         Train wall_clock/train: 39.0700
         Train throughput/batches_per_sec: 0.3258
         Train throughput/samples_per_sec: 83.3991
""",
        "composer",
        12,
        1 / 0.3258,
        0.0,
    ),
    "composer 0.12, before its window is full": (
        """\
[batch=1/4800]:
         Train trainer/global_step: 0
         Train loss/train/total: 11.9237
         Train wall_clock/train: 12.5000
         Train wall_clock/val: 0.0000
[batch=2/4800]:
         Train trainer/global_step: 1
         Train loss/train/total: 11.5237
         Train wall_clock/train: 15.5700
         Train wall_clock/val: 0.0000
[batch=3/4800]:
         Train trainer/global_step: 2
         Train loss/train/total: 11.1237
         Train wall_clock/train: 18.6400
         Train wall_clock/val: 0.0000
""",
        "composer",
        2,
        3.07,
        0.001,
    ),
    "llm-foundry, output of two ranks": (
        """\
----------Begin global rank 0 STDERR----------
[batch=1/10]:
         Train time/epoch: 0
         Train time/batch: 0
         Train time/token: 0
         Train memory/allocated_mem: 1.4586
         Train memory/reserved_mem: 8.5794
         Train loss/train/total: 11.6153
         Train time/train: 0.0073
         Train time/val: 0.0000
         Train time/total: 0.0073
         Train lr-DecoupledAdamW/group0: 0.0000
[batch=2/10]:
         Train time/batch: 1
         Train memory/reserved_mem: 8.5794
         Train loss/train/total: 11.5153
         Train time/train: 0.0134
         Train time/val: 0.0000
         Train time/total: 0.0134
----------End global rank 0 STDERR----------
----------Begin global rank 1 STDERR----------
/workspace/composer/callbacks/speed_monitor.py:120: UserWarning: gpu_flop count not found for None with precision: amp_bf16; MFU
[batch=1/10]:
         Train time/batch: 0
         Train loss/train/total: 11.6153
         Train time/train: 0.0073
[batch=2/10]:
         Train time/batch: 1
         Train loss/train/total: 11.5153
         Train time/train: 0.0134
----------End global rank 1 STDERR----------
""",
        "composer",
        2,
        3600 * 0.0061,
        0.4,
    ),
    "olmo, before OLMo-core": (
        """\
2024-07-01 12:00:02.114	node01:0	olmo.train:816	INFO	[step=1/739328,epoch=0]
    optim/total_grad_norm=14.2
    train/CrossEntropyLoss=11.27
    train/Perplexity=78,413
    throughput/total_tokens=4,194,304
2024-07-01 12:00:14.300	node01:0	olmo.train:816	INFO	[step=2/739328,epoch=0]
    optim/total_grad_norm=13.9
    train/CrossEntropyLoss=11.19
    train/Perplexity=72,402
    throughput/total_tokens=8,388,608
    throughput/device/tokens_per_second=10,743
    throughput/device/batches_per_second=0.0820
2024-07-01 12:00:26.495	node01:0	olmo.train:816	INFO	[step=3/739328,epoch=0]
    optim/total_grad_norm=13.1
    train/CrossEntropyLoss=11.02
    train/Perplexity=61,084
    throughput/total_tokens=12,582,912
    throughput/device/tokens_per_second=10,744
    throughput/device/batches_per_second=0.0820
""",
        "olmo-core",
        2,
        1 / 0.0820,
        0.05,
    ),
    **BAR_LOGS,
    **ROUND_LOGS,
}
