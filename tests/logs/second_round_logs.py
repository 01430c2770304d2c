"""Logs of working trainers from public threads and repositories: the second part of the later rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.thread_bar_logs import GoodLog

SECOND_ROUND_LOGS: Final[dict[str, GoodLog]] = {
    "hf every ten with dict glued": (
        """\
总训练样本数: 177
Map: 100%|██████████| 177/177 [00:00<00:00, 1165.37 examples/s]
 14%|█▍        | 10/69 [10:55<1:11:19, 72.53s/it]{'loss': 5.4448, 'grad_norm': 19.964406967163086, 'learning_rate': 1.8e-05, 'epoch': 0.45}
 29%|██▉       | 20/69 [21:21<47:21, 57.99s/it]{'loss': 3.7822, 'grad_norm': 8.013687133789062, 'learning_rate': 3.8e-05, 'epoch': 0.9}
 43%|████▎     | 30/69 [29:57<36:03, 55.47s/it]{'loss': 2.3764, 'grad_norm': 6.840965747833252, 'learning_rate': 5.8e-05, 'epoch': 1.31}
""",
        "progress bar",
        20,
        62.6,
        0.3,
    ),
    "nanotron tiny": (
        """\
08/31/2024 14:37:31 [INFO|DP=0|PP=0|TP=0]:  Memory usage: 64.15MiB. Peak allocated 309.29MiB. Peak reserved: 496.00MiB
08/31/2024 14:37:31 [INFO|DP=0|PP=0|TP=0]: iteration: 1 / 15 | consumed_tokens: 512 | elapsed_time_per_iteration_ms: 4.71K | tokens_per_sec: 109 | tokens_per_sec_per_gpu: 109 | global_batch_size: 2 | lm_loss: 5.32 | lr: 0.00015 | model_tflops_per_gpu: 1.87e-05 | hardware_tflops_per_gpu: 1.87e-05 | grad_norm: 2.96 | cuda_memory_allocated: 67.4M | cuda_max_memory_reserved: 520M | hd_total_memory_tb: 2.13T | hd_used_memory_tb: 952G | hd_free_memory_tb: 1.18T
08/31/2024 14:37:31 [INFO|DP=0|PP=0|TP=0]:  Memory usage: 64.26MiB. Peak allocated 64.26MiB. Peak reserved: 496.00MiB
08/31/2024 14:37:31 [INFO|DP=0|PP=0|TP=0]: iteration: 2 / 15 | consumed_tokens: 1.02K | elapsed_time_per_iteration_ms: 23.4 | tokens_per_sec: 21.9K | tokens_per_sec_per_gpu: 21.9K | global_batch_size: 2 | lm_loss: 5.31 | lr: 0.0003 | model_tflops_per_gpu: 0.00376 | hardware_tflops_per_gpu: 0.00376 | grad_norm: 2.99
""",
        "nanotron",
        2,
        0.0234,
        1e-06,
    ),
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
    "hf bar then loss on its line": (
        """\
 49%|####8     | 39/80 [1:50:41<2:03:48, 181.18s/it] {'loss': 1.2034, 'learning_rate': 1.1e-05, 'epoch': 0.97}
 50%|#####     | 40/80 [1:53:42<2:00:46, 181.16s/it] {'loss': 1.1931, 'learning_rate': 1.0e-05, 'epoch': 1.0}
 51%|#####1    | 41/80 [1:56:43<1:57:44, 181.14s/it] {'loss': 1.1821, 'learning_rate': 9.7e-06, 'epoch': 1.02}
""",
        "progress bar",
        40,
        181.1,
        1.0,
    ),
    "hf bars overwritten in one line": (
        """\
  5%|▌         | 20/430 [05:26<1:52:40, 16.49s/it]                                                   {'loss': 1.32, 'grad_norm': 0.41, 'learning_rate': 9.3e-06, 'epoch': 0.05}   5%|▌         | 20/430 [05:26<1:52:40, 16.49s/it]  5%|▍         | 21/430 [05:42<1:52:0  5%|▌         | 22/430 [05:59<1:52:08, 16.49s/it]  5%|▌         | 23/430 [06:15<1:51:20, 16.41s/it]
""",
        "progress bar",
        21,
        16.0,
        0.5,
    ),
    "nemo 1 bar without a rate": (
        """\
Epoch 0: :  40%|████      | 6/15 [05:29<08:13, reduced_train_loss=11.50, global_step=4.000, consumed_samples=10240.0, train_step_timing in s=49.60]
Epoch 0: :  47%|████▋     | 7/15 [06:19<07:13, reduced_train_loss=11.50, global_step=5.000, consumed_samples=12288.0, train_step_timing in s=49.50]
""",
        "nemo",
        7,
        49.5,
        1e-06,
    ),
}
