"""Logs of Megatron-LM, under launchers and loggers."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
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
    "megatron every hundred": (
        """\
[rank0]:  iteration      100/    5000 | consumed samples:          800 | elapsed time per iteration (ms): 291.3 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.500000E-06 | global batch size:     8 | lm loss: 1.192634E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
[rank0]:  iteration      200/    5000 | consumed samples:         1600 | elapsed time per iteration (ms): 283.9 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.500000E-06 | global batch size:     8 | lm loss: 1.192634E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
[rank0]:  iteration      300/    5000 | consumed samples:         2400 | elapsed time per iteration (ms): 284.4 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.500000E-06 | global batch size:     8 | lm loss: 1.192634E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        200,
        0.2839,
        1e-06,
    ),
    "memory profile around": (
        """\
[mem_profile] after_setup_model_and_optimizer: alloc=3.000 GiB reserved=4.000 GiB max_alloc=5.000 GiB max_reserved=6.000 GiB
[mem_profile] step_1_post: alloc=5.000 GiB reserved=7.000 GiB max_alloc=8.000 GiB max_reserved=9.000 GiB
 [2026-04-27 00:00:04] iteration        1/       3 | consumed samples:            2 | elapsed time per iteration (ms): 4000.0 | learning rate: 1.000000E-04 | global batch size:     2 | lm loss: 3.000000E+00 | mtp_1 loss: 4.000000E+00 | loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2026-04-27 00:00:05] iteration        2/       3 | consumed samples:            4 | elapsed time per iteration (ms): 1000.0 | learning rate: 1.000000E-04 | global batch size:     2 | lm loss: 2.000000E+00 | mtp_1 loss: 3.000000E+00 | loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2026-04-27 00:00:06] iteration        3/       3 | consumed samples:            6 | elapsed time per iteration (ms): 1010.0 | learning rate: 1.000000E-04 | global batch size:     2 | lm loss: 2.000000E+00 | mtp_1 loss: 3.000000E+00 | loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        1.0,
        1e-06,
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
        (
            '{"log":" iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\\n","stream":"stdout","time":"2025-03-01T10:00:10.5Z"}\n'
            '{"log":" iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\\n","stream":"stdout","time":"2025-03-01T10:00:14.5Z"}\n'
            '{"log":" iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\\n","stream":"stdout","time":"2025-03-01T10:00:18.5Z"}\n'
        ),
        "megatron",
        2,
        4.021,
        1e-06,
    ),
    "mpirun tags": (
        """\
[1,15]<stdout>: iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
[1,15]<stdout>: iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
[1,15]<stdout>: iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        4.021,
        1e-06,
    ),
    "docker compose": (
        """\
train-1  |  iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
train-1  |  iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
train-1  |  iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        4.021,
        1e-06,
    ),
    "ray actor": (
        """\
(MegatronTrainRayActor pid=2407496, ip=10.0.0.5) iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
(MegatronTrainRayActor pid=2407496, ip=10.0.0.5) iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
(MegatronTrainRayActor pid=2407496, ip=10.0.0.5) iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        4.021,
        1e-06,
    ),
    "cloudwatch": (
        (
            "2025-02-01T10:00:10.000Z\talgo-1-abcd\t iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
            "2025-02-01T10:00:14.000Z\talgo-1-abcd\t iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
            "2025-02-01T10:00:18.000Z\talgo-1-abcd\t iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        ),
        "megatron",
        2,
        4.021,
        1e-06,
    ),
    "carriage returns": (
        (
            " iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\r\n"
            " iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\r\n"
            " iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\r\n"
            "\n"
        ),
        "megatron",
        2,
        4.021,
        1e-06,
    ),
    "checkpoint lines between": (
        """\
 iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
saving checkpoint at iteration       1 to /ckpt in torch_dist format
  successfully saved checkpoint from iteration       1 to /ckpt [ t 1/8, p 1/4 ]
 iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
saving checkpoint at iteration       2 to /ckpt in torch_dist format
  successfully saved checkpoint from iteration       2 to /ckpt [ t 1/8, p 1/4 ]
 iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
saving checkpoint at iteration       3 to /ckpt in torch_dist format
  successfully saved checkpoint from iteration       3 to /ckpt [ t 1/8, p 1/4 ]
""",
        "megatron",
        2,
        4.021,
        1e-06,
    ),
}
