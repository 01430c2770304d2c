"""Logs of nanoGPT, LitGPT, OLMo, vision and sequence models, and trainers that no reader knows."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "olmo, before OLMo-core": (
        (
            "2024-07-01 12:00:02.114\tnode01:0\tolmo.train:816\tINFO\t[step=1/739328,epoch=0]\n"
            "    optim/total_grad_norm=14.2\n"
            "    train/CrossEntropyLoss=11.27\n"
            "    train/Perplexity=78,413\n"
            "    throughput/total_tokens=4,194,304\n"
            "2024-07-01 12:00:14.300\tnode01:0\tolmo.train:816\tINFO\t[step=2/739328,epoch=0]\n"
            "    optim/total_grad_norm=13.9\n"
            "    train/CrossEntropyLoss=11.19\n"
            "    train/Perplexity=72,402\n"
            "    throughput/total_tokens=8,388,608\n"
            "    throughput/device/tokens_per_second=10,743\n"
            "    throughput/device/batches_per_second=0.0820\n"
            "2024-07-01 12:00:26.495\tnode01:0\tolmo.train:816\tINFO\t[step=3/739328,epoch=0]\n"
            "    optim/total_grad_norm=13.1\n"
            "    train/CrossEntropyLoss=11.02\n"
            "    train/Perplexity=61,084\n"
            "    throughput/total_tokens=12,582,912\n"
            "    throughput/device/tokens_per_second=10,744\n"
            "    throughput/device/batches_per_second=0.0820\n"
        ),
        "olmo-core",
        2,
        12.195121951219512,
        0.05,
    ),
    "nanogpt 2023, resumed, without mfu": (
        """\
iter 1631: loss 4.0863, time 2561.94ms
iter 1632: loss 3.7441, time 563.15ms
iter 1633: loss 3.9848, time 562.11ms
""",
        "nanogpt",
        1632,
        0.56315,
        0.0,
    ),
    "modded-nanogpt, total time": (
        """\
step:1/1750 train_time:211ms step_avg:211.02ms
step:2/1750 train_time:302ms step_avg:151.11ms
step:3/1750 train_time:394ms step_avg:131.40ms
""",
        "nanogpt",
        2,
        0.091,
        0.03,
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
    "olmo-core with an eta": (
        (
            "2025-07-01 10:00:04.120\tgpu-3:0\tolmo_core.train.callbacks.console_logger:62\tINFO\t[step=1/119209,epoch=1,eta=2 days, 3:00:00]\n"
            "    optim/LR (group 0)=1.000E-06\n"
            "    throughput/device/TPS (actual avg)=0.0\n"
            "    train/CE loss=11.03\n"
            "2025-07-01 10:00:06.110\tgpu-3:0\tolmo_core.train.callbacks.console_logger:62\tINFO\t[step=2/119209,epoch=1,eta=2 days, 3:00:00]\n"
            "    optim/LR (group 0)=1.000E-06\n"
            "    throughput/device/BPS=0.5025\n"
            "    throughput/device/BPS (actual avg)=0.5021\n"
            "    throughput/device/TPS=8,233\n"
            "    train/CE loss=11.01\n"
            "2025-07-01 10:00:08.100\tgpu-3:0\tolmo_core.train.callbacks.console_logger:62\tINFO\t[step=3/119209,epoch=1,eta=22:11:40]\n"
            "    throughput/device/BPS=0.5028\n"
            "    train/CE loss=10.93\n"
        ),
        "olmo-core",
        2,
        1.990049751,
        0.02,
    ),
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
    "olmo 1": (
        """\
[2024-03-01 10:00:00] INFO     [olmo.train:816, rank=0] [step=1/739328]
    train/CrossEntropyLoss=11.35
    throughput/device/tokens_per_second=2,048
    throughput/device/batches_per_second=0.1250
[2024-03-01 10:00:04] INFO     [olmo.train:816, rank=0] [step=2/739328]
    train/CrossEntropyLoss=11.20
    throughput/device/tokens_per_second=4,096
    throughput/device/batches_per_second=0.2500
""",
        "olmo-core",
        2,
        4.0,
        0.01,
    ),
    "nanoGPT with an evaluation": (
        """\
2023-04-02 21:14:13 iter 3970: loss 3.9800, time 870.70ms, mfu 17.61%
2023-04-02 21:14:22 iter 3980: loss 3.9700, time 868.10ms, mfu 17.61%
2023-04-02 21:14:31 iter 3990: loss 3.9600, time 870.70ms, mfu 17.61%
2023-04-02 21:15:12 step 4000: train loss 3.9120, val loss 3.9301
2023-04-02 21:15:21 iter 4000: loss 3.9514, time 44120.81ms, mfu 16.02%
""",
        "nanogpt",
        3980,
        0.8681,
        1e-06,
    ),
    "litgpt": (
        """\
Epoch 1 | iter 1 step 0 | loss train: 1.646, val: n/a | iter time: 820.00 ms
Epoch 1 | iter 2 step 1 | loss train: 1.660, val: n/a | iter time: 548.00 ms (step)
Epoch 1 | iter 3 step 1 | loss train: 1.687, val: n/a | iter time: 300.00 ms
Epoch 1 | iter 4 step 2 | loss train: 1.597, val: n/a | iter time: 595.00 ms (step)
Epoch 1 | iter 5 step 2 | loss train: 1.640, val: n/a | iter time: 300.00 ms
Epoch 1 | iter 6 step 3 | loss train: 1.703, val: n/a | iter time: 590.00 ms (step)
""",
        "litgpt",
        2,
        0.895,
        1e-06,
    ),
    "litgpt, every fifth step": (
        """\
Epoch 3 | iter 120050 step 12005 | loss train: 2.981, val: 3.012 | iter time: 188.30 ms (step) remaining time: 0:15:30
Epoch 3 | iter 120100 step 12010 | loss train: 2.971, val: 3.012 | iter time: 186.90 ms (step) remaining time: 0:15:20
Epoch 3 | iter 120150 step 12015 | loss train: 2.961, val: 3.012 | iter time: 188.30 ms (step) remaining time: 0:15:11
""",
        "litgpt",
        12010,
        1.869,
        1e-06,
    ),
    "llama2.c": (
        """\
260 | loss 6.1113 | lr 2.600000e-05 | 5412.33ms | mfu 0.32%
270 | loss 6.0640 | lr 2.700000e-05 | 5398.07ms | mfu 0.32%
280 | loss 5.8062 | lr 2.800000e-05 | 5467.92ms | mfu 0.32%
""",
        "nanogpt",
        270,
        5.39807,
        1e-06,
    ),
    "modded-nanogpt, validations": (
        """\
step:0/1390 val_loss:10.8258 train_time:0ms step_avg:nanms
step:125/1390 val_loss:4.4102 train_time:35000ms step_avg:311.42ms
step:250/1390 val_loss:4.0217 train_time:75000ms step_avg:313.90ms
step:375/1390 val_loss:3.8466 train_time:115000ms step_avg:316.05ms
""",
        "nanogpt",
        250,
        0.32,
        1e-06,
    ),
    "litgpt, two ranks": (
        """\
Epoch 1 | iter 1 step 0 | loss train: 1.646, val: n/a | iter time: 820.00 ms
Epoch 1 | iter 1 step 0 | loss train: 1.646, val: n/a | iter time: 821.00 ms
Epoch 1 | iter 2 step 1 | loss train: 1.660, val: n/a | iter time: 548.00 ms (step)
Epoch 1 | iter 2 step 1 | loss train: 1.660, val: n/a | iter time: 549.00 ms (step)
Epoch 1 | iter 3 step 1 | loss train: 1.687, val: n/a | iter time: 300.00 ms
Epoch 1 | iter 3 step 1 | loss train: 1.690, val: n/a | iter time: 301.00 ms
Epoch 1 | iter 4 step 2 | loss train: 1.597, val: n/a | iter time: 595.00 ms (step)
Epoch 1 | iter 4 step 2 | loss train: 1.599, val: n/a | iter time: 596.00 ms (step)
Epoch 1 | iter 5 step 2 | loss train: 1.640, val: n/a | iter time: 300.00 ms
Epoch 1 | iter 5 step 2 | loss train: 1.640, val: n/a | iter time: 300.00 ms
Epoch 1 | iter 6 step 3 | loss train: 1.703, val: n/a | iter time: 590.00 ms (step)
Epoch 1 | iter 6 step 3 | loss train: 1.703, val: n/a | iter time: 590.00 ms (step)
""",
        "litgpt",
        2,
        0.895,
        1e-06,
    ),
    "lit-gpt, lines of batches": (
        """\
Validating ...
iter 1 step 0: loss 3.8603, iter time: 1618.42ms
iter 2 step 1: loss 3.8760, iter time: 402.77ms (optimizer.step)
iter 3 step 1: loss 3.8439, iter time: 129.46ms
iter 4 step 2: loss 3.7907, iter time: 216.69ms (optimizer.step)
iter 5 step 2: loss 3.8257, iter time: 133.14ms
iter 6 step 3: loss 3.8054, iter time: 223.63ms (optimizer.step)
""",
        "litgpt",
        2,
        0.34615,
        1e-05,
    ),
    "MetricLogger of torchvision's references": (
        """\
Start training
Epoch: [0]  [   0/1251]  eta: 3:44:40  lr: 0.000001  loss: 6.9410 (6.9410)  time: 10.7758  data: 6.0212  max mem: 15832
Epoch: [0]  [  10/1251]  eta: 0:31:17  lr: 0.000001  loss: 6.9358 (6.9349)  time: 0.5671  data: 0.0003  max mem: 15832
Epoch: [0]  [  20/1251]  eta: 0:20:46  lr: 0.000001  loss: 6.9358 (6.9362)  time: 0.5604  data: 0.0003  max mem: 15832
Epoch: [0]  [  30/1251]  eta: 0:17:01  lr: 0.000001  loss: 6.9371 (6.9360)  time: 0.5598  data: 0.0003  max mem: 15832
""",
        "metric logger",
        10,
        0.5671,
        1e-06,
    ),
    "OpenCLIP": (
        """\
2024-03-11,09:14:02 | INFO | Train Epoch: 0 [   4096/10968539 (0%)] Data (t): 8.214 Batch (t): 13.902, 294.634/s, 36.8293/s/gpu LR: 0.000000 Logit Scale: 14.286 Contrastive_loss: 8.4021 (8.4021) Loss: 8.4021 (8.4021)
2024-03-11,09:17:31 | INFO | Train Epoch: 0 [ 413696/10968539 (4%)] Data (t): 0.118 Batch (t): 2.088, 1961.69/s, 245.211/s/gpu LR: 0.000050 Logit Scale: 14.281 Contrastive_loss: 8.1904 (8.2963) Loss: 8.1904 (8.2963)
2024-03-11,09:21:00 | INFO | Train Epoch: 0 [ 823296/10968539 (8%)] Data (t): 0.121 Batch (t): 2.091, 1958.87/s, 244.859/s/gpu LR: 0.000100 Logit Scale: 14.269 Contrastive_loss: 7.9023 (8.1649) Loss: 7.9023 (8.1649)
""",
        "open clip",
        2,
        2.088,
        1e-06,
    ),
    "fairseq": (
        """\
2022-05-02 11:20:41 | INFO | train_inner | epoch 001:    100 / 1411 loss=13.412, nll_loss=13.02, ppl=8308.2, wps=31200.4, ups=1.25, wpb=24960.1, bsz=712, num_updates=100, lr=1.25e-05, gnorm=3.071, loss_scale=128, train_wall=80, gb_free=17.3, wall=93
2022-05-02 11:22:01 | INFO | train_inner | epoch 001:    200 / 1411 loss=11.207, nll_loss=10.54, ppl=1488.9, wps=31350.7, ups=1.25, wpb=25080.6, bsz=718, num_updates=200, lr=2.5e-05, gnorm=1.902, loss_scale=128, train_wall=79, gb_free=17.1, wall=173
2022-05-02 11:23:21 | INFO | train_inner | epoch 001:    300 / 1411 loss=10.118, nll_loss=9.33, ppl=643.5, wps=31288.2, ups=1.25, wpb=25030.6, bsz=715, num_updates=300, lr=3.75e-05, gnorm=1.644, loss_scale=128, train_wall=80, gb_free=17.2, wall=253
""",
        "fairseq",
        200,
        0.8,
        0.005,
    ),
    "a step's time in parentheses of its own unit": (
        """\
2025-02-19 08:11:20,104 - train - INFO - global step 10 | train loss 9.8812 | dt (ms) 2412.7 | tok/s 54310
2025-02-19 08:11:22,519 - train - INFO - global step 11 | train loss 9.7915 | dt (ms) 2409.9 | tok/s 54373
2025-02-19 08:11:24,930 - train - INFO - global step 12 | train loss 9.6870 | dt (ms) 2411.3 | tok/s 54341
""",
        "named figures",
        11,
        2.4099,
        0.0001,
    ),
    "olmo 1, without its blanks": (
        """\
[2024-04-18 19:00:17] INFO     [olmo.train:816, rank=0] [step=74/739328]
    train/CrossEntropyLoss=7.427
    throughput/total_tokens=310,378,496
    throughput/device/tokens_per_second=9,407
    throughput/device/batches_per_second=0.5612
olmo.train:816	INFO	[step=75/739328]
train/CrossEntropyLoss=7.417
throughput/total_tokens=314,572,800
throughput/device/batches_per_second=0.5668
""",
        "olmo-core",
        75,
        1.7643,
        0.001,
    ),
    "olmo-core, the beginning of the block cut off": (
        """\
2025-07-03T19:33:13.452062681Z     system/GPU reserved mem (%)=45.29
2025-07-03T19:33:13.452064945Z     throughput/device/BPS=0.0173
2025-07-03T19:33:13.452066249Z     throughput/device/BPS (actual avg)=0.0170
""",
        "olmo-core",
        1,
        57.8,
        0.1,
    ),
}
