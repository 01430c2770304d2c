"""Logs of working trainers from public threads and repositories: the first part of the later rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.thread_bar_logs import GoodLog

FIRST_ROUND_LOGS: Final[dict[str, GoodLog]] = {
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
    "ms-swift 4 strings with bar": (
        """\
Train:   0%|          | 0/60 [00:00<?, ?it/s][INFO:swift] use_logits_to_keep: True
Train:   2%|▏         | 1/60 [00:42<41:47, 42.51s/it]{'loss': '0.3713', 'grad_norm': '0.8901', 'learning_rate': '3.333e-05', 'token_acc': '0.921', 'epoch': '0.08602', 'global_step/max_steps': '1/60', 'elapsed_time': '43s', 'remaining_time': '41m 48s', 'memory(GiB)': '14.3', 'train_speed(s/it)': '42.51'}
Train:   3%|▎         | 2/60 [01:30<44:10, 45.70s/it]
Train:   5%|▌         | 3/60 [02:17<44:00, 46.32s/it]
Train:   8%|▊         | 5/60 [03:52<43:40, 47.64s/it]{'loss': '0.2992', 'grad_norm': '0.6541', 'learning_rate': '9.97e-05', 'token_acc': '0.9285', 'epoch': '0.4301', 'global_step/max_steps': '5/60', 'elapsed_time': '3m 53s', 'remaining_time': '42m 43s', 'memory(GiB)': '14.3', 'train_speed(s/it)': '46.6'}
""",
        "progress bar",
        2,
        47.9,
        1.0,
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
    "torchtitan mxfp8 2026": (
        """\
[rank0]:[titan] 2026-07-17 12:05:19,271 - root - INFO - step:  1  loss:  7.98741  grad_norm:  3.7610  memory:  3.87GiB(2.17%)  tps: 589  tflops: 0.32  mfu: N/A
[rank0]:[titan] 2026-07-17 12:05:19,271 - root - INFO - Synchronizing and adjusting timeout for all ProcessGroups to 0:01:40
[rank0]:[titan] 2026-07-17 12:05:19,496 - root - INFO - step:  2  loss:  6.09081  grad_norm:  4.2098  memory:  4.26GiB(2.39%)  tps: 72,915  tflops: 39.59  mfu: N/A
[rank0]:[titan] 2026-07-17 12:05:19,713 - root - INFO - step:  3  loss:  5.03595  grad_norm:  3.2568  memory:  4.28GiB(2.40%)  tps: 75,562  tflops: 41.03  mfu: N/A
""",
        "torchtitan",
        2,
        0.224699993,
        1e-06,
    ),
    "torchtitan ezpz": (
        """\
[2025-09-11 14:09:46,954794][I][components/metrics:437:log] step:  1  loss: 10.8595  grad_norm:  3.2105  memory:  8.44GiB(13.20%)  tps: 149  tflops: 1.39  mfu: 0.47%
[2025-09-11 14:09:46,956945][I][distributed/utils:298:set_pg_timeouts] Synchronizing and adjusting timeout for all ProcessGroups to 0:01:40
[2025-09-11 14:09:49,400581][I][components/metrics:437:log] step:  2  loss: 14.4458  grad_norm: 41.7880  memory:  8.44GiB(13.20%)  tps: 6,697  tflops: 62.15  mfu: 20.84%
[2025-09-11 14:09:51,890890][I][components/metrics:437:log] step:  3  loss: 15.2005  grad_norm: 66.6053  memory:  8.44GiB(13.20%)  tps: 6,562  tflops: 60.90  mfu: 20.42%
""",
        "torchtitan",
        2,
        2.446468568,
        1e-06,
    ),
    "torchtitan every ten": (
        """\
    [rank0]:[titan] 2025-06-04 08:51:48,074 - root - INFO - step:  1  loss: 12.2254  memory: 27.34GiB(28.78%)  tps: 375  tflops: 21.73  mfu: 2.20%
    [rank0]:[titan] 2025-06-04 08:52:11,370 - root - INFO - step: 10  loss: 10.7069  memory: 30.99GiB(32.62%)  tps: 7,034  tflops: 407.35  mfu: 41.19%
    [rank0]:[titan] 2025-06-04 08:52:34,700 - root - INFO - step: 20  loss:  8.9196  memory: 30.99GiB(32.62%)  tps: 7,022  tflops: 406.65  mfu: 41.12%
""",
        "torchtitan",
        10,
        2.32925789,
        1e-06,
    ),
    "olmo-core no bps first": (
        """\
[2025-02-20 15:17:59] INFO     [olmo_core.train.trainer:1311, rank=0] Starting epoch 1...
[2025-02-20 15:18:04] INFO     [olmo_core.train.callbacks.console_logger:62, rank=0] [step=1/7,epoch=1]
    optim/LR (group 0)=1.00E-05
    optim/total grad norm=14.34
    system/GPU active mem (%)=25.10
    system/GPU reserved mem (GiB)=25.00
    throughput/device/data loading (s)=2.108
    train/CE loss=11.03
[2025-02-20 15:18:07] INFO     [olmo_core.train.callbacks.console_logger:62, rank=0] [step=2/7,epoch=1]
    optim/LR (group 0)=1.00E-05
    throughput/device/BPS=0.3380
    throughput/device/TPS=88,600
    train/CE loss=11.01
[2025-02-20 15:18:10] INFO     [olmo_core.train.callbacks.console_logger:62, rank=0] [step=3/7,epoch=1]
    throughput/device/BPS=0.3391
    train/CE loss=10.93
""",
        "olmo-core",
        2,
        2.958579882,
        0.02,
    ),
    "olmo 2024": (
        """\
[2024-04-17 09:42:26] INFO     [olmo.train:816, rank=0] [step=1/739328]
    train/CrossEntropyLoss=11.25
    train/Perplexity=76,631
    throughput/total_tokens=4,194,304
    System/Peak GPU Memory (MB)=42,133
[2024-04-17 09:42:38] INFO     [olmo.train:816, rank=0] [step=2/739328]
    train/CrossEntropyLoss=10.73
    throughput/total_tokens=8,388,608
    throughput/device/tokens_per_second=45,538
    throughput/device/batches_per_second=0.0869
    System/Peak GPU Memory (MB)=43,309
[2024-04-17 09:42:50] INFO     [olmo.train:816, rank=0] [step=3/739328]
    train/CrossEntropyLoss=10.64
    throughput/device/tokens_per_second=45,368
    throughput/device/batches_per_second=0.0865
""",
        "olmo-core",
        2,
        11.5,
        0.6,
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
    "nemo b200": (
        """\
[7] NVIDIA B200 | 68°C, 100 % | 125170 / 183359 MB | root(125156M)
Training epoch 0, iteration 45/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: 45 | max_memory_reserved: 127785762816 | max_memory_allocated: 115792977920 | reduced_train_loss: 11.96 | train_step_timing in s: 6.08 | TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888
Training epoch 0, iteration 46/99 | lr: 7.046e-06 | global_batch_size: 128 | global_step: 46 | max_memory_reserved: 127785762816 | max_memory_allocated: 115792977920 | reduced_train_loss: 11.96 | train_step_timing in s: 6.061 | TFLOPS_per_GPU: 1.252e+03 | consumed_samples: 6016
Training epoch 0, iteration 47/99 | lr: 7.196e-06 | global_batch_size: 128 | global_step: 47 | max_memory_reserved: 127785762816 | max_memory_allocated: 115792977920 | reduced_train_loss: 11.96 | train_step_timing in s: 6.082 | TFLOPS_per_GPU: 1.248e+03 | consumed_samples: 6144
""",
        "nemo",
        46,
        6.061,
        1e-06,
    ),
    "nemo stamped": (
        """\
2025-10-17T11:32:59+08:00] Training epoch 0, iteration 527/999 | lr: 0.0001758 | global_batch_size: 32 | global_step: 527 | reduced_train_loss: 2.792 | train_step_timing in s: 2.389 | tokens_per_sec_per_gpu: 6.859e+03 | consumed_samples: 16896 | val_loss: 3.624
[2025-10-17T11:33:02+08:00] Training epoch 0, iteration 528/999 | lr: 0.0001754 | global_batch_size: 32 | global_step: 528 | reduced_train_loss: 3.06 | train_step_timing in s: 2.443 | tokens_per_sec_per_gpu: 6.706e+03 | consumed_samples: 16928 | val_loss: 3.624
[2025-10-17T11:33:04+08:00] Training epoch 0, iteration 529/999 | lr: 0.0001749 | global_batch_size: 32 | global_step: 529 | reduced_train_loss: 3.221 | train_step_timing in s: 2.127 | tokens_per_sec_per_gpu: 7.702e+03 | consumed_samples: 16960 | val_loss: 3.624
""",
        "nemo",
        528,
        2.443,
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
    "composer 20 blocks": (
        """\
[batch=1/20]:
\t Train time/batch: 0
\t Train loss/train/total: 0.0056
\t Train time/train: 0.0036
\t Train time/total: 0.0036
\t Train time/remaining_estimate: 0.0684
[batch=2/20]:
\t Train time/batch: 1
\t Train memory/peak_reserved_mem: 4.0643
\t Train loss/train/total: 0.0055
\t Train throughput/batches_per_sec: 0.1085
\t Train throughput/samples_per_sec: 0.2170
\t Train time/train: 0.0062
\t Train time/total: 0.0062
\t Train expert_selection/ffn_layer: <wandb.sdk.data_types.image.Image object at 0x711e4be2d700>
""",
        "composer",
        2,
        9.216589862,
        0.5,
    ),
    "composer epochs": (
        """\
[epoch=1][batch=4/5]:
         Train time/batch: 3
         Train loss/train/total: 8.6213
         Train throughput/batches_per_sec: 0.0027
         Train throughput/samples_per_sec: 2.7330
         Train time/train: 0.4220
[epoch=1][batch=5/5]:
         Train time/batch: 4
         Train loss/train/total: 8.4213
         Train throughput/batches_per_sec: 0.0027
         Train throughput/samples_per_sec: 2.7330
         Train throughput/device/batches_per_sec: 0.0002
         Train time/train: 0.5249
""",
        "composer",
        5,
        370.37037037,
        14,
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
    "lightning iterable": (
        """\
Epoch 0: |          | 0/? [00:00<?, ?it/s] 141)\x20
Epoch 0: |          | 1/? [00:20<00:00,  0.05it/s, v_num=0, train_loss=14.60]
Epoch 0: |          | 2/? [00:36<00:00,  0.06it/s, v_num=0, train_loss=13.90]
Epoch 0: |          | 3/? [00:52<00:00,  0.06it/s, v_num=0, train_loss=14.80]
Epoch 0: |          | 4/? [01:09<00:00,  0.06it/s, v_num=0, train_loss=14.10]
""",
        "progress bar",
        2,
        16,
        2,
    ),
    "lightning cut by the terminal": (
        """\
Epoch 0:   6%|▋| 1/16 [00:03<00:46,  0.32it/s, v_num=0, train_loss_step=0.697, val_loss
Epoch 0:  12%|█| 2/16 [00:04<00:33,  0.42it/s, v_num=0, train_loss_step=0.497, val_loss
Epoch 0:  19%|█| 3/16 [00:06<00:28,  0.46it/s, v_num=0, train_loss_step=0.397, val_loss
""",
        "progress bar",
        2,
        1.65,
        0.3,
    ),
    "hf in colab": (
        """\
finetune-ckl8r-3837635091: Using amp half precision backend
  4% 99/2238 [1:48:23<35:43:37, 60.13s/it]
finetune-ckl8r-3837635091: CPU: (maxrss: 114,754mb F: 674,206mb) GPU: (U: 37,289mb F: 13,763mb T: 51,052mb)
  4% 100/2238 [1:49:59<42:08:58, 70.97s/it]{'loss': 2.6446, 'learning_rate': 5e-05, 'epoch': 0.04}
  5% 101/2238 [1:51:00<40:18:00, 67.89s/it]
  5% 102/2238 [1:52:01<38:48:00, 65.40s/it]
""",
        "progress bar",
        100,
        96,
        2,
    ),
    "llamafactory tee": (
        """\
[stderr]  12%|█▏        | 6/50 [02:10<16:03, 21.89s/it][INFO|2025-12-14 10:52:48] llamafactory.data.sampler:143 >>\x20
[stderr]  14%|█▍        | 7/50 [02:32<15:41, 21.90s/it][INFO|2025-12-14 10:53:10] llamafactory.data.sampler:143 >>\x20
[stderr]  16%|█▌        | 8/50 [02:55<15:37, 22.31s/it][INFO|2025-12-14 10:53:33] llamafactory.data.sampler:143 >>\x20
[stderr]  18%|█▊        | 9/50 [03:17<15:09, 22.17s/it][INFO|2025-12-14 10:53:55] llamafactory.data.sampler:143 >>\x20
""",
        "progress bar",
        7,
        21.95,
        1.1,
    ),
}
