"""Logs of forks of Megatron-LM and of Megatron Bridge."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
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
    "megatron mixtral 2024": (
        """\
 [2024-04-06 03:03:31] iteration       85/     100 | consumed samples:        10880 | elapsed time per iteration (ms): 5580.9 | throughput per GPU (TFLOP/s/GPU): 234.0 | learning rate: 1.700000E-05 | global batch size:   128 | lm loss: 1.831795E+00 | load_balancing_loss: 1.009344E+00 | loss scale: 1.0 | grad norm: 1.578 | num zeros: 0.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2024-04-06 03:03:37] iteration       86/     100 | consumed samples:        11008 | elapsed time per iteration (ms): 5695.8 | throughput per GPU (TFLOP/s/GPU): 229.3 | learning rate: 1.720000E-05 | global batch size:   128 | lm loss: 1.831625E+00 | load_balancing_loss: 1.011533E+00 | loss scale: 1.0 | grad norm: 1.515 | num zeros: 0.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2024-04-06 03:03:42] iteration       87/     100 | consumed samples:        11136 | elapsed time per iteration (ms): 5444.5 | throughput per GPU (TFLOP/s/GPU): 239.9 | learning rate: 1.740000E-05 | global batch size:   128 | lm loss: 1.814374E+00 | load_balancing_loss: 1.010052E+00 | loss scale: 1.0 | grad norm: 1.365 | num zeros: 0.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        86,
        5.6958,
        1e-06,
    ),
    "ms-swift megatron 2026": (
        """\
 [2026-03-03 16:38:36] iteration        2/     624 | consumed samples:          256 | elapsed time per iteration (ms): 3988.6 | memory(GiB): 83.46 | elapsed time: 3m 8s | remaining time: 16h 12m 43s | learning rate: 9.999746E-07 | global batch size:   128 | loss: -2.529132E-02 | kl: 1.107648E-02 | reward: 7.636719E-01 | loss scale: 1.0 | grad norm: 75.173 | num zeros: 92172.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2026-03-03 16:38:40] iteration        3/     624 | consumed samples:          384 | elapsed time per iteration (ms): 3953.8 | memory(GiB): 83.46 | elapsed time: 3m 12s | remaining time: 11h 1m 5s | learning rate: 9.999429E-07 | global batch size:   128 | loss: -9.724231E-03 | kl: 8.747269E-03 | loss scale: 1.0 | grad norm: 71.173 | num zeros: 92172.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        3.9886,
        1e-06,
    ),
    "bridge wrapped 86": (
        """\
 [2025-10-02 22:52:07] iteration       10/      50 | consumed samples:         5120 |
elapsed time per iteration (ms): 13212.7 | learning rate: 3.000000E-04 | global batch
size:   512 | lm loss: 4.474437E+00 | loss scale: 1.0 | grad norm: 0.704 | number of s
kipped iterations:   0 | number of nan iterations:   0 |
[Rank 0] (after 10 iterations) memory (MB) | allocated: 11908.05029296875 | max alloca
ted: 12712.43603515625 | reserved: 12954.0 | max reserved: 12954.0
Step Time : 14.26s GPU utilization: 58.2TFLOP/s/GPU
 [2025-10-02 22:54:30] iteration       20/      50 | consumed samples:        10240 |
elapsed time per iteration (ms): 14260.3 | learning rate: 2.604594E-04 | global batch
size:   512 | lm loss: 8.797448E-02 | loss scale: 1.0 | grad norm: 0.170 | number of s
kipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        20,
        14.2603,
        1e-06,
    ),
    "argonne old": (
        """\
        [2024-03-07 15:27:02,646] [INFO] [timer.py:260:stop] epoch=0/micro_step=199/global_step=199, RunningAvgSamplesPerSec=58.730622229657506, CurrSamplesPerSec=61.35304005128382, MemAllocated=6.01GB, MaxMemAllocated=19.52GB
        iteration      199/  317892 | consumed samples:       152832 | consumed tokens:    625999872 | elapsed time per iteration (ms): 14287.5 | learning rate: 2.407E-04 | global batch size:   768 | lm loss: 5.905366E+00 | loss scale: 8192.0 | actual seqlen:  4096 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 53.753 | tokens per gpu per second (tgs): 1146.733 | TFLOPs: 69.85 |
        [2024-03-07 15:27:15,063] [INFO] [logging.py:96:log_dist] [Rank 0] step=200, skipped=4, lr=[0.000240653, 0.000240653], mom=[(0.9, 0.95), (0.9, 0.95)]
        iteration      200/  317892 | consumed samples:       153600 | consumed tokens:    629145600 | elapsed time per iteration (ms): 12410.5 | learning rate: 2.407E-04 | global batch size:   768 | lm loss: 5.900366E+00 | loss scale: 8192.0 | actual seqlen:  4096 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 61.883 | tokens per gpu per second (tgs): 1320.0 | TFLOPs: 80.41 |
""",
        "megatron",
        200,
        12.4105,
        1e-06,
    ),
    "argonne 2024 with equals": (
        """\
[2024-04-21 02:45:08][INFO][training:1251] -  iteration=       1/  317892 | consumed_samples=         256 | consumed_tokens=     1048576 | elapsed_time_per_iteration_ms=17711.7 | learning_rate=0.000000 | global_batch_size=  256 | lm loss=11.208768 | loss_scale=65536.0 | actual_seqlen= 4096 | number_of_skipped_iterations=  0 | number_of_nan_iterations=  0 | samples_per_second=14.454 | tokens_per_gpu_per_second_tgs=7400.298 | TFLOPs=144.87 |
[Rank 0] (after 1 iterations) memory (MB) | allocated: 4866.666015625 | max allocated: 14024.81396484375 | reserved: 17240.0 | max reserved: 17240.0
[2024-04-21 02:45:24,651] [INFO] [logging.py:96:log_dist] [Rank 0] step=2, skipped=0, lr=[1.0066311829174689e-07, 1.0066311829174689e-07], mom=[(0.9, 0.999), (0.9, 0.999)]
[2024-04-21 02:45:24,652] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd: 3859.30 | bwd: 11267.97 | bwd_inner: 10508.40 | bwd_allreduce: 759.40 | step: 829.19
[2024-04-21 02:45:24][INFO][training:1251] -  iteration=       2/  317892 | consumed_samples=         512 | consumed_tokens=     2097152 | elapsed_time_per_iteration_ms=16030.6 | learning_rate=0.000000 | global_batch_size=  256 | lm loss=11.208171 | loss_scale=65536.0 | actual_seqlen= 4096 | number_of_skipped_iterations=  0 | number_of_nan_iterations=  0 | samples_per_second=15.969 | tokens_per_gpu_per_second_tgs=8176.383 | TFLOPs=160.07 |
[2024-04-21 02:45:40,723] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd: 3865.91 | bwd: 11249.43 | bwd_inner: 10520.18 | bwd_allreduce: 729.09 | step: 888.45
[2024-04-21 02:45:40][INFO][training:1251] -  iteration=       3/  317892 | consumed_samples=         768 | consumed_tokens=     3145728 | elapsed_time_per_iteration_ms=16071.8 | learning_rate=0.000000 | global_batch_size=  256 | lm loss=11.205435 | loss_scale=65536.0 | actual_seqlen= 4096 | number_of_skipped_iterations=  0 | number_of_nan_iterations=  0 | samples_per_second=15.929 | tokens_per_gpu_per_second_tgs=8155.393 | TFLOPs=159.66 |
""",
        "megatron",
        2,
        16.0306,
        1e-06,
    ),
    "swiss megatron with srun label": (
        """\
3:  [2026-05-29 03:48:10] iteration      298/     300 | consumed samples:       305152 | consumed tokens: 1.250B | elapsed time per iteration (ms): 131464.1 | eta: 0:04:22 | tokens/sec/gpu: 7976.0 | throughput per GPU (TFLOP/s/GPU): 411.0 | learning rate: 1.100000E-05 | global batch size:  1024 | lm loss: 1.514590E+00 | loss scale: 1.0 | grad norm: 0.633 | params norm: 7092.406 | number of skipped iterations:   0 | number of nan iterations:   0 |
3:  [2026-05-29 03:50:22] iteration      299/     300 | consumed samples:       306176 | consumed tokens: 1.254B | elapsed time per iteration (ms): 131264.1 | eta: 0:02:11 | tokens/sec/gpu: 7988.3 | throughput per GPU (TFLOP/s/GPU): 411.7 | learning rate: 1.100000E-05 | global batch size:  1024 | lm loss: 1.504490E+00 | loss scale: 1.0 | grad norm: 0.623 | params norm: 7092.506 | number of skipped iterations:   0 | number of nan iterations:   0 |
3:  [2026-05-29 03:52:33] iteration      300/     300 | consumed samples:       307200 | consumed tokens: 1.258B | elapsed time per iteration (ms): 131064.1 | eta: 0:00:00 | tokens/sec/gpu: 8000.5 | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 1.100000E-05 | global batch size:  1024 | lm loss: 1.504590E+00 | loss scale: 1.0 | grad norm: 0.623 | params norm: 7092.506 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        299,
        131.2641,
        1e-06,
    ),
    "flagscale 2026 stamps in microseconds": (
        """\
[default7]: [2026-09-08 20:31:37.112485] iteration        1/   24000 | consumed samples:           64 | elapsed time per iteration (ms): 271607.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.500000E-06 | global batch size:    64 | lm loss: 1.192634E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
[default7]: [2026-09-08 20:31:42.232910] iteration        2/   24000 | consumed samples:          128 | elapsed time per iteration (ms): 5120.3 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.500000E-06 | global batch size:    64 | lm loss: 1.192634E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
[default7]: [2026-09-08 20:31:47.340101] iteration        3/   24000 | consumed samples:          192 | elapsed time per iteration (ms): 5107.2 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.500000E-06 | global batch size:    64 | lm loss: 1.192634E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        5.1203,
        1e-06,
    ),
    "primus averages": (
        """\
[20251023 12:39:12][rank-63/64][INFO ] [--------trainer.py:2382] :  iteration      424/   40000 | consumed samples:       434176 | elapsed time per iteration (ms): 16601.3/17219.3 | hip mem usage/free/total/usage_ratio: 170.50GB/85.49GB/255.98GB/66.60% | throughput per GPU (TFLOP/s/GPU): 611.9/590.0 | tokens per GPU (tokens/s/GPU): 9868.1/9514.4 | learning rate: 9.998E-05 | global batch size:  1024 | lm loss: 3.1E+00 | loss scale: 1.0 | grad norm: 0.41 | number of skipped iterations:   0 | number of nan iterations:   0 |
[20251023 12:39:29][rank-63/64][INFO ] [--------trainer.py:2382] :  iteration      425/   40000 | consumed samples:       434176 | elapsed time per iteration (ms): 16612.7/17190.1 | hip mem usage/free/total/usage_ratio: 170.50GB/85.49GB/255.98GB/66.60% | throughput per GPU (TFLOP/s/GPU): 611.9/590.0 | tokens per GPU (tokens/s/GPU): 9868.1/9514.4 | learning rate: 9.998E-05 | global batch size:  1024 | lm loss: 3.1E+00 | loss scale: 1.0 | grad norm: 0.41 | number of skipped iterations:   0 | number of nan iterations:   0 |
[20251023 12:39:45][rank-63/64][INFO ] [--------trainer.py:2382] :  iteration      426/   40000 | consumed samples:       434176 | elapsed time per iteration (ms): 16590.0/17170.7 | hip mem usage/free/total/usage_ratio: 170.50GB/85.49GB/255.98GB/66.60% | throughput per GPU (TFLOP/s/GPU): 611.9/590.0 | tokens per GPU (tokens/s/GPU): 9868.1/9514.4 | learning rate: 9.998E-05 | global batch size:  1024 | lm loss: 3.1E+00 | loss scale: 1.0 | grad norm: 0.41 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        425,
        16.6127,
        1e-06,
    ),
    "gpt-neox 1": (
        """\
 samples/sec: 11.4 | iteration       10/  320000 | elapsed time per iteration (ms): 5600.2 | learning rate: 1.2E-06 | approx flops per GPU: 150.3TFLOPS | lm_loss: 1.05E+01 | loss scale: 65536.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
time (ms) | forward: 1200.20 | backward: 3000.12 | optimizer: 200.30
 samples/sec: 12.7 | iteration       20/  320000 | elapsed time per iteration (ms): 5030.4 | learning rate: 1.2E-06 | approx flops per GPU: 150.3TFLOPS | lm_loss: 1.05E+01 | loss scale: 65536.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
time (ms) | forward: 1200.20 | backward: 3000.12 | optimizer: 200.30
 samples/sec: 12.8 | iteration       30/  320000 | elapsed time per iteration (ms): 5000.0 | learning rate: 1.2E-06 | approx flops per GPU: 150.3TFLOPS | lm_loss: 1.05E+01 | loss scale: 65536.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
time (ms) | forward: 1200.20 | backward: 3000.12 | optimizer: 200.30
""",
        "megatron",
        20,
        5.0304,
        1e-06,
    ),
    "ascend with typo": (
        """\
 iteration  11/50000 | consumed samples: 704 | consumed tokens:  1441792 | elapsed time per iteration (ms):  5272.8 | learning rate:    1.499E-05 | gloabl batch size:  64 | lm loss:  1.376514E+01 | loss scale:  65536.0 | grad norm:    459.628 | actual seqlen:  2048 | number of skipped
iterations: 0 | number of nan iterations:   0 | samples per second: 12.138 | TFLOPs: 167.52 |
time (ms)
 iteration  12/50000 | consumed samples: 768 | consumed tokens:  1572864 | elapsed time per iteration (ms):  5280.1 | learning rate:    1.499E-05 | gloabl batch size:  64 | lm loss:  1.376514E+01 | loss scale:  65536.0 | grad norm:    459.628 | actual seqlen:  2048 | number of skipped
iterations: 0 | number of nan iterations:   0 | samples per second: 12.121 | TFLOPs: 167.52 |
time (ms)
 iteration  13/50000 | consumed samples: 832 | consumed tokens:  1703936 | elapsed time per iteration (ms):  5275.0 | learning rate:    1.499E-05 | gloabl batch size:  64 | lm loss:  1.376514E+01 | loss scale:  65536.0 | grad norm:    459.628 | actual seqlen:  2048 | number of skipped
iterations: 0 | number of nan iterations:   0 | samples per second: 12.133 | TFLOPs: 167.52 |
time (ms)
""",
        "megatron",
        12,
        5.2801,
        1e-06,
    ),
    "train engine prefix": (
        """\
[Rank 0 | Local Rank 0] 2026-07-02 10:01:10,100 INFO [train_engine:48] =>  [2026-07-02 10:01:10] iteration        1/     100 | consumed samples:            8 | elapsed time per iteration (ms): 17137.9 | learning rate: 1.0E-05 | global batch size:     8 | loss: 1.924620E+00 | grad norm: 134.300 |
[Rank 0 | Local Rank 0] 2026-07-02 10:01:17,100 INFO [train_engine:48] =>  [2026-07-02 10:01:17] iteration        2/     100 | consumed samples:            16 | elapsed time per iteration (ms): 7100.4 | learning rate: 1.0E-05 | global batch size:     8 | loss: 1.924620E+00 | grad norm: 134.300 |
[Rank 0 | Local Rank 0] 2026-07-02 10:01:24,100 INFO [train_engine:48] =>  [2026-07-02 10:01:24] iteration        3/     100 | consumed samples:            24 | elapsed time per iteration (ms): 7098.8 | learning rate: 1.0E-05 | global batch size:     8 | loss: 1.924620E+00 | grad norm: 134.300 |
""",
        "megatron",
        2,
        7.1004,
        1e-06,
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
}
