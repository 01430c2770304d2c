"""Logs of NeMo and Composer."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
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
        3.0693677102516883,
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
        21.96,
        0.4,
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
    "composer 20 blocks": (
        (
            "[batch=1/20]:\n"
            "\t Train time/batch: 0\n"
            "\t Train loss/train/total: 0.0056\n"
            "\t Train time/train: 0.0036\n"
            "\t Train time/total: 0.0036\n"
            "\t Train time/remaining_estimate: 0.0684\n"
            "[batch=2/20]:\n"
            "\t Train time/batch: 1\n"
            "\t Train memory/peak_reserved_mem: 4.0643\n"
            "\t Train loss/train/total: 0.0055\n"
            "\t Train throughput/batches_per_sec: 0.1085\n"
            "\t Train throughput/samples_per_sec: 0.2170\n"
            "\t Train time/train: 0.0062\n"
            "\t Train time/total: 0.0062\n"
            "\t Train expert_selection/ffn_layer: <wandb.sdk.data_types.image.Image object at 0x711e4be2d700>\n"
        ),
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
    "composer console line": (
        (
            "[epoch=0][batch=1/4800]:\n"
            "\t Train time/epoch: 0\n"
            "\t Train time/batch: 0\n"
            "\t Train trainer/device_train_microbatch_size: 8\n"
            "\t Train loss/train/total: 11.8\n"
            "\t Train time/train: 0.0031\n"
            "[epoch=0][batch=2/4800]:\n"
            "\t Train time/batch: 1\n"
            "\t Train loss/train/total: 11.7\n"
            "\t Train throughput/batches_per_sec: 0.2020\n"
            "\t Train throughput/samples_per_sec: 12.93\n"
            "\t Train time/train: 0.0045\n"
            "[epoch=0][batch=3/4800]:\n"
            "\t Train time/batch: 2\n"
            "\t Train loss/train/total: 11.6\n"
            "\t Train throughput/batches_per_sec: 0.2021\n"
            "\t Train throughput/samples_per_sec: 12.93\n"
            "\t Train time/train: 0.0059\n"
        ),
        "composer",
        2,
        4.95,
        0.6,
    ),
    "nemo with srun labels": (
        """\
0: [NeMo I 2025-05-05 10:00:10 nemo_logging:393] Training epoch 0, iteration 0/99 | lr: 1e-05 | global_batch_size: 64 | global_step: 0 | reduced_train_loss: 11.0 | train_step_timing in s: 19.1 | consumed_samples: 64
0: [NeMo I 2025-05-05 10:00:14 nemo_logging:393] Training epoch 0, iteration 1/99 | lr: 1e-05 | global_batch_size: 64 | global_step: 1 | reduced_train_loss: 11.0 | train_step_timing in s: 4.021 | consumed_samples: 128
0: [NeMo I 2025-05-05 10:00:18 nemo_logging:393] Training epoch 0, iteration 2/99 | lr: 1e-05 | global_batch_size: 64 | global_step: 2 | reduced_train_loss: 11.0 | train_step_timing in s: 4.019 | consumed_samples: 192
""",
        "nemo",
        1,
        4.021,
        1e-06,
    ),
    "nemo 2 lines after a bar of restoring": (
        """\
Restoring states from the checkpoint path at /ckpt
Loading distributed checkpoint with TensorStoreLoadShardedStrategy
Training epoch 0, iteration 50/99 | lr: 1e-05 | global_batch_size: 64 | global_step: 50 | reduced_train_loss: 3.0 | train_step_timing in s: 9.1
Training epoch 0, iteration 51/99 | lr: 1e-05 | global_batch_size: 64 | global_step: 51 | reduced_train_loss: 3.0 | train_step_timing in s: 4.021
Training epoch 0, iteration 52/99 | lr: 1e-05 | global_batch_size: 64 | global_step: 52 | reduced_train_loss: 3.0 | train_step_timing in s: 4.019
""",
        "nemo",
        51,
        4.021,
        1e-06,
    ),
    "nemo 2, broken before its bars": (
        """\
# mbs/0 Training epoch 0, iteration 10/14 | lr: 1e-06 | global_batch_size: 128
| global_step: 10 | max_memory_reserved: 140000000000 | reduced_train_loss: 11.0
| train_step_timing in s: 4.684 | TFLOPS_per_GPU: 1.8e+03 | consumed_samples: 1408
# mbs/0 Training epoch 0, iteration 11/14 | lr: 1e-06 | global_batch_size: 128
| global_step: 11 | max_memory_reserved: 140000000000 | reduced_train_loss: 11.0
| train_step_timing in s: 3.684 | TFLOPS_per_GPU: 1.8e+03 | consumed_samples: 1536
""",
        "nemo",
        11,
        3.684,
        1e-06,
    ),
    "composer with srun labels": (
        """\
0: [batch=101/1000]:
0:       Train time/batch: 100
0:       Train loss/train/total: 8.4000
0:       Train throughput/batches_per_sec: 0.4000
0:       Train throughput/device/batches_per_sec: 0.0500
0: [batch=102/1000]:
0:       Train time/batch: 101
0:       Train loss/train/total: 8.3000
0:       Train throughput/batches_per_sec: 0.5000
0:       Train throughput/device/batches_per_sec: 0.0625
""",
        "composer",
        102,
        2.0,
        0.001,
    ),
    "composer, condensed": (
        """\
[batch=1/50]:  Train loss/train/total: 1.6896  LanguageCrossEntropy: 1.6547
[batch=20/50]: Train loss/train/total: 0.5505  throughput/tokens_per_sec: 155825.3348
[batch=30/50]: Train loss/train/total: 0.3242  throughput/batches_per_sec: 1.2500  device/tokens_per_sec: 19188.0121
[batch=40/50]: Train loss/train/total: 0.2242  throughput/batches_per_sec: 1.2936  device/tokens_per_sec: 19188.0121
""",
        "composer",
        30,
        0.8,
        0.001,
    ),
    "composer, a block without its heading": (
        """\
\t Train memory/alloc_retries: 0
\t Train loss/train/total: 0.0051
\t Train throughput/batches_per_sec: 0.1250
\t Train throughput/device/batches_per_sec: 0.1250
\t Train time/train: 0.0536
""",
        "composer",
        1,
        8.0,
        0.001,
    ),
}
