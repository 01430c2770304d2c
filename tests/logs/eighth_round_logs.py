"""Logs of working trainers in public formats that were read blind: vision, sequence to sequence, and loggers of one's
own."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.thread_bar_logs import GoodLog

EIGHTH_ROUND_LOGS: Final[dict[str, GoodLog]] = {
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
        1e-6,
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
        1e-6,
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
        1e-4,
    ),
}
"""Of each log its lines, source, iteration, seconds and seconds of its last digit."""
