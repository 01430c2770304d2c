"""Logs of DeepSpeed's timers and pipeline engine."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
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
        1e-06,
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
        8.60076331774445,
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
        0.764285072684288,
        0.0,
    ),
    "deepspeed with mpi pod": (
        """\
actor-multi-node-worker-0: [2023-06-21 03:45:55,424] [INFO] [timer.py:199:stop] epoch=1/micro_step=926/global_step=1880, RunningAvgSamplesPerSec=6.60372389313781, CurrSamplesPerSec=6.368302303901175, MemAllocated=7.79GB, MaxMemAllocated=10.55GB
actor-multi-node-worker-0: [2023-06-21 03:47:29,251] [INFO] [logging.py:96:log_dist] [Rank 0] step=1890, skipped=19, lr=[9.275816201087529e-08, 9.275816201087529e-08], mom=[(0.9, 0.95), (0.9, 0.95)]
actor-multi-node-worker-0: [2023-06-21 03:47:29,254] [INFO] [timer.py:199:stop] epoch=1/micro_step=936/global_step=1890, RunningAvgSamplesPerSec=6.604309943995918, CurrSamplesPerSec=6.809163050305052, MemAllocated=7.79GB, MaxMemAllocated=10.55GB
""",
        "throughput timer",
        1890,
        9.39909935,
        1e-06,
    ),
    "gpu log interleaved deepspeed 2024": (
        """\
[2024-09-23 10:11:02,257] [INFO] [fused_optimizer.py:352:_update_scale] No Grad overflow for 500 iterations
[2024-09-23 10:11:02,257] [INFO] [fused_optimizer.py:353:_update_scale] Increasing dynamic loss scale from 16384.0 to 32768.0
[2024-09-23 10:11:02,482] [INFO] [logging.py:96:log_dist] [Rank 0] step=6000, skipped=10, lr=[0.001], mom=[[0.8, 0.999]]
[2024-09-23 10:11:02,482] [INFO] [timer.py:260:stop] epoch=0/micro_step=6000/global_step=6000, RunningAvgSamplesPerSec=6493.909488298559, CurrSamplesPerSec=5892.428132408464, MemAllocated=0.06GB, MaxMemAllocated=0.06GB
[2024-09-23 10:11:02,541] [INFO] [fused_optimizer.py:344:_update_scale]
Grad overflow on iteration 6023
[2024-09-23 10:11:02,542] [INFO] [fused_optimizer.py:345:_update_scale] Reducing dynamic loss scale from 32768.0 to 16384.0
[2024-09-23 10:11:04,482] [INFO] [logging.py:96:log_dist] [Rank 0] step=6200, skipped=11, lr=[0.001], mom=[[0.8, 0.999]]
[2024-09-23 10:11:04,482] [INFO] [timer.py:260:stop] epoch=0/micro_step=6200/global_step=6200, RunningAvgSamplesPerSec=6490.9, CurrSamplesPerSec=6400.0, MemAllocated=0.06GB, MaxMemAllocated=0.06GB
""",
        "throughput timer",
        6200,
        0.01,
        1e-06,
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
    "gpt-neox 2": (
        (
            "[2024-07-18 10:00:10,100] [INFO] [logging.py:96:log_dist] [Rank 0] step=1, skipped=0, lr=[1e-07, 1e-07], mom=[[0.9, 0.95], [0.9, 0.95]]\n"
            "steps: 1 loss: 10.9841 iter time (s): 9.120 samples/sec: 7.018\n"
            "%comms: 4.1 \n"
            " %optimizer_step 1.2 \n"
            " %forward: 20.1 \n"
            " %backward: 50.2\n"
            "[2024-07-18 10:00:10,101] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | train_batch: 0.00 | batch_input: 5.10 | forward: 1001.20 | backward: 2010.10 | optimizer: 100.2\n"
            "[2024-07-18 10:00:14,100] [INFO] [logging.py:96:log_dist] [Rank 0] step=2, skipped=0, lr=[1e-07, 1e-07], mom=[[0.9, 0.95], [0.9, 0.95]]\n"
            "steps: 2 loss: 10.9841 iter time (s): 4.020 samples/sec: 15.920\n"
            "%comms: 4.1 \n"
            " %optimizer_step 1.2 \n"
            " %forward: 20.1 \n"
            " %backward: 50.2\n"
            "[2024-07-18 10:00:14,101] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | train_batch: 0.00 | batch_input: 5.10 | forward: 1001.20 | backward: 2010.10 | optimizer: 100.2\n"
            "[2024-07-18 10:00:18,100] [INFO] [logging.py:96:log_dist] [Rank 0] step=3, skipped=0, lr=[1e-07, 1e-07], mom=[[0.9, 0.95], [0.9, 0.95]]\n"
            "steps: 3 loss: 10.9841 iter time (s): 4.010 samples/sec: 15.960\n"
            "%comms: 4.1 \n"
            " %optimizer_step 1.2 \n"
            " %forward: 20.1 \n"
            " %backward: 50.2\n"
            "[2024-07-18 10:00:18,101] [INFO] [logging.py:96:log_dist] [Rank 0] rank=0 time (ms) | train_batch: 0.00 | batch_input: 5.10 | forward: 1001.20 | backward: 2010.10 | optimizer: 100.2\n"
        ),
        "pipeline engine",
        2,
        4.02,
        0.001,
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
    "qlora-pipe": (
        """\
[2024-06-14 22:08:50.558] [INFO] [qlora-pipe] step:     1 /   900 loss: 1.8120 iter time (s): 19.440 samples/sec: 0.823 eta: 4h51m
[2024-06-14 22:09:02.929] [INFO] [qlora-pipe] step:     2 /   900 loss: 1.7920 iter time (s): 12.371 samples/sec: 1.293 eta: 3h58m
[2024-06-14 22:09:15.331] [INFO] [qlora-pipe] step:     3 /   900 loss: 1.7720 iter time (s): 12.402 samples/sec: 1.290 eta: 3h40m
""",
        "pipeline engine",
        2,
        12.371,
        1e-06,
    ),
    "deepspeed throughput timer, an overflow long before its line": (
        (
            "[2023-10-31 08:58:20,000] [INFO] [timer.py:260:stop] epoch=0/micro_step=12000/global_step=12000, RunningAvgSamplesPerSec=1412.76, CurrSamplesPerSec=1322.81, MemAllocated=0.0GB, MaxMemAllocated=0.0GB\n"
            "[2023-10-31 08:58:26,908] [INFO] [unfused_optimizer.py:207:step] [deepspeed] fp16 dynamic loss scale overflow! Skipping step. Attempted loss scale: 8192.0, reducing to 4096.0\n"
            "[2023-10-31 08:58:26,908] [INFO] [unfused_optimizer.py:281:_update_scale] Grad overflow on iteration: 13437\n"
            "[2023-10-31 08:58:32,525] [INFO] [unfused_optimizer.py:289:_update_scale] No Grad overflow for 500 iterations\n"
            "[2023-10-31 08:59:57,000] [INFO] [timer.py:260:stop] epoch=0/micro_step=14000/global_step=14000, RunningAvgSamplesPerSec=1412.76, CurrSamplesPerSec=1322.81, MemAllocated=0.0GB, MaxMemAllocated=0.0GB\n"
        ),
        "throughput timer",
        14000,
        0.04838,
        0.00001,
    ),
    "gpt-neox 2021, the breakdown alone": (
        """\
%comms: 85.43 \n %optimizer_step 33.48 \n %forward: 3.25 \n %backward: 9.97
rank=0 time (ms) | train_batch: 97510.72 | batch_input: 78.66 | forward: 2844.74 | comms: 74766.41 | backward: 8724.91 | step: 29300.81
rank=0 time (ms) | train_batch: 87510.72 | batch_input: 78.66 | forward: 2844.74 | comms: 74766.41 | backward: 8724.91 | step: 29300.81
rank=0 time (ms) | train_batch: 87610.72 | batch_input: 78.66 | forward: 2844.74 | comms: 74766.41 | backward: 8724.91 | step: 29300.81
""",
        "wall-clock breakdown",
        2,
        87.51072,
        1e-6,
    ),
}
