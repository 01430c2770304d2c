"""Progress bars of Lightning, rich and loops of one's own, and bars beside evaluations and skipped steps."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
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
    "lightning 1, with its sanity check": (
        """\
Set SLURM handle signals.
Validation sanity check: 0it [00:00, ?it/s]
Validation sanity check:   0%|          | 0/2 [00:00<?, ?it/s]
Training: 0it [00:00, ?it/s]
Training:   0%|          | 0/14 [00:00<?, ?it/s]
Epoch 0:   0%|          | 0/14 [00:00<?, ?it/s]
Epoch 0:   7%|▋         | 1/14 [00:03<00:39,  3.05s/it]
Epoch 0:   7%|▋         | 1/14 [00:03<00:39,  3.05s/it, loss=-6.21, v_num=655642]
Epoch 0:  14%|█▍        | 2/14 [00:04<00:24,  2.04s/it, loss=-5.73, v_num=655642]
Epoch 0:  21%|██▏       | 3/14 [00:05<00:18,  1.70s/it, loss=-5.81, v_num=655642]
""",
        "progress bar",
        2,
        1.03,
        0.04,
    ),
    "lightning iterable": (
        (
            "Epoch 0: |          | 0/? [00:00<?, ?it/s] 141) \n"
            "Epoch 0: |          | 1/? [00:20<00:00,  0.05it/s, v_num=0, train_loss=14.60]\n"
            "Epoch 0: |          | 2/? [00:36<00:00,  0.06it/s, v_num=0, train_loss=13.90]\n"
            "Epoch 0: |          | 3/? [00:52<00:00,  0.06it/s, v_num=0, train_loss=14.80]\n"
            "Epoch 0: |          | 4/? [01:09<00:00,  0.06it/s, v_num=0, train_loss=14.10]\n"
        ),
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
    "lightning on slurm, lines of all": (
        """\
Epoch 0:   0%|          | 1/2000 [00:08<4:37:12,  0.12it/s, v_num=551, train_loss=10.90]
Epoch 0:   0%|          | 2/2000 [00:11<3:11:30,  0.17it/s, v_num=551, train_loss=10.80]
Epoch 0:   0%|          | 3/2000 [00:15<2:49:10,  0.20it/s, v_num=551, train_loss=10.70]
""",
        "progress bar",
        2,
        3.4,
        1.5,
    ),
    "bars that move up": (
        (
            "\x1b[A\r"
            "  1%|▏         | 1/100 [00:05<07:20, 5.50s/it]\n"
            "\x1b[A\r"
            "  2%|▏         | 2/100 [00:09<07:20, 4.70s/it]\n"
            "\x1b[A\r"
            "  3%|▏         | 3/100 [00:13<07:20, 4.44s/it]\n"
        ),
        "progress bar",
        2,
        4.13,
        0.3,
    ),
    "lightning, far from its beginning": (
        """\
Epoch 0:   3%|▎         | 34103/1100000 [5:28:58<171:22:21,  1.73it/s, loss=2.52, v_num=, reduced_train_loss=2.510, global_step=3.1e+4]
Epoch 0:   3%|▎         | 34106/1100000 [5:29:00<171:22:19,  1.73it/s, loss=2.52, v_num=, reduced_train_loss=2.520, global_step=3.1e+4]
Epoch 0:   3%|▎         | 34109/1100000 [5:29:02<171:22:09,  1.73it/s, loss=2.52, v_num=, reduced_train_loss=2.520, global_step=3.1e+4]
""",
        "progress bar",
        34106,
        0.5780346820809249,
        1e-09,
    ),
    "rich bar without an end": (
        """\
Epoch 0/-2 ━━━━━━━━━━━━━━━━━━━━━━ 2210/-- 0:51:50 • -:--:-- 0.71it/s v_num: k2ad train_loss: 9.871
Epoch 0/-2 ━━━━━━━━━━━━━━━━━━━━━━ 2220/-- 0:52:04 • -:--:-- 0.71it/s v_num: k2ad train_loss: 9.861
Epoch 0/-2 ━━━━━━━━━━━━━━━━━━━━━━ 2230/-- 0:52:18 • -:--:-- 0.71it/s v_num: k2ad train_loss: 9.851
""",
        "progress bar",
        2220,
        1.4,
        0.1,
    ),
    "a loop over epochs smooths its rate": (
        """\
Epoch 0:   8%|▊         | 1/12 [00:04<00:44,  4.00s/it]
Epoch 0:  17%|█▋        | 2/12 [00:04<00:19,  1.94s/it]
Epoch 0:  25%|██▌       | 3/12 [00:05<00:11,  1.28s/it]
Epoch 0:  33%|███▎      | 4/12 [00:05<00:07,  1.03it/s]
Epoch 0:  42%|████▏     | 5/12 [00:06<00:05,  1.25it/s]
""",
        "progress bar",
        2,
        0.5,
        0.03,
    ),
    "lightning's mean after a slow step": (
        """\
Epoch 0:   8%|▊         | 1/12 [00:03<00:33,  0.33it/s]
Epoch 0:  17%|█▋        | 2/12 [00:03<00:16,  0.60it/s]
Epoch 0:  25%|██▌       | 3/12 [00:03<00:10,  0.83it/s]
Epoch 0:  33%|███▎      | 4/12 [00:03<00:07,  1.02it/s]
""",
        "progress bar",
        2,
        0.3,
        0.01,
    ),
    "composer's bar": (
        """\
[epoch=0][batch=21/625]: loss/train/total: 7.0200
train          Epoch   0:    3%|▊                        | 21/625 [00:13<06:05,  1.65ba/s, loss/train/total=7.0200]
train          Epoch   0:    3%|▊                        | 22/625 [00:13<06:05,  1.65ba/s, loss/train/total=7.0100]
train          Epoch   0:    3%|▊                        | 23/625 [00:14<06:04,  1.65ba/s, loss/train/total=7.0000]
""",
        "progress bar",
        22,
        0.6060606060606061,
        1e-06,
    ),
    "the middle of a loop over epochs": (
        """\
Epoch 0:  47%|████▋     | 45/96 [02:43<03:03,  3.61s/it]
Epoch 0:  48%|████▊     | 46/96 [02:47<02:59,  3.59s/it]
Epoch 0:  49%|████▉     | 47/96 [02:50<02:56,  3.61s/it]
Epoch 0:  50%|█████     | 48/96 [02:54<02:52,  3.60s/it]
""",
        "progress bar",
        46,
        3.543333333333334,
        1e-06,
    ),
    "trl, an evaluation before each print of the bar": (
        """\
{'eval_loss': 0.4505, 'eval_runtime': 139.5292, 'eval_samples_per_second': 1.656, 'epoch': 0.4}
 13%|█▎        | 50/378 [19:20<1:52:21, 20.41s/it]
{'loss': 0.367, 'grad_norm': 3.17, 'learning_rate': 4.95e-06, 'epoch': 0.48}
{'eval_loss': 0.1305, 'eval_runtime': 140.1004, 'eval_samples_per_second': 1.649, 'epoch': 0.8}
 26%|██▋       | 100/378 [38:40<1:34:37, 20.42s/it]
{'loss': 0.117, 'grad_norm': 0.17, 'learning_rate': 4.35e-06, 'epoch': 0.88}
{'eval_loss': 0.1105, 'eval_runtime': 139.8004, 'eval_samples_per_second': 1.652, 'epoch': 1.2}
 40%|███▉      | 150/378 [58:00<1:17:33, 20.41s/it]
""",
        "progress bar",
        100,
        20.4,
        0.1,
    ),
    "hf trainer, dictionaries late beside the bar": (
        """\
 25%|██▌       | 50/200 [00:50<02:30,  1.00s/it]
{'eval_loss': 0.4505, 'eval_runtime': 20.0292, 'eval_samples_per_second': 16.56, 'epoch': 0.4}
 50%|█████     | 100/200 [01:40<01:40,  1.00s/it]
{'eval_loss': 0.1305, 'eval_runtime': 20.1004, 'eval_samples_per_second': 16.49, 'epoch': 0.8}
 75%|███████▌  | 150/200 [02:30<00:50,  1.00s/it]
""",
        "progress bar",
        100,
        1.0,
        0.01,
    ),
    "hf trainer, first steps skipped by deepspeed": (
        """\
  0%|          | 0/2515 [00:00<?, ?it/s][2023-02-08 13:52:24,187] [INFO] [stage_1_and_2.py:1762:step] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 65536
  0%|          | 1/2515 [00:14<10:00:14, 14.33s/it][2023-02-08 13:52:33,452] [INFO] [stage_1_and_2.py:1762:step] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768.0
  0%|          | 2/2515 [00:23<7:55:18, 11.35s/it][2023-02-08 13:52:42,731] [INFO] [stage_1_and_2.py:1762:step] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 32768.0, reducing to 16384.0
  8%|▊         | 200/2515 [46:16<9:01:34, 14.04s/it]
 16%|█▌        | 400/2515 [1:32:32<8:10:14, 13.91s/it]
""",
        "progress bar",
        200,
        13.9,
        0.2,
    ),
    "sentence transformers, a bar of examples between": (
        """\
 19%|███▏      | 300/1563 [05:44<31:11,  1.20s/it]{'loss': 0.8919, 'grad_norm': 4.08, 'learning_rate': 4.3e-05, 'epoch': 0.19}
Computing widget examples:  20%|██        | 1/5 [00:00<00:01,  2.42example/s]
Computing widget examples:  40%|████      | 2/5 [00:02<00:04,  1.35example/s]
Computing widget examples: 100%|██████████| 5/5 [00:04<00:00,  1.40example/s]
 38%|███▊      | 600/1563 [11:44<19:18,  1.20s/it]{'loss': 0.8337, 'grad_norm': 3.79, 'learning_rate': 3.3e-05, 'epoch': 0.38}
 58%|█████▊    | 900/1563 [17:44<13:15,  1.20s/it]{'loss': 0.8183, 'grad_norm': 4.26, 'learning_rate': 3.0e-05, 'epoch': 0.58}
""",
        "progress bar",
        600,
        1.2,
        0.01,
    ),
    "lightning, two digits of a rate": (
        """\
Epoch 0:   0%|          | 0/260 [00:00<?, ?it/s]
Epoch 0:   3%|▎         | 8/260 [17:04<8:57:59,  0.01it/s, v_num=2ch5]
Epoch 0:   6%|▌         | 16/260 [34:09<8:40:57,  0.01it/s, v_num=2ch5]
""",
        "progress bar",
        16,
        128.2,
        0.6,
    ),
    "a unit upside down": (
        """\
  0%|          | 14/2826 [10:49<36:13:38, 46.38it/s, loss=1.06]
  1%|          | 15/2826 [11:35<36:12:52, 46.38it/s, loss=1.05]
""",
        "progress bar",
        15,
        46.38,
        0.1,
    ),
    "a unit upside down, the bar alone": (
        """\
  0%|          | 14/2826 [10:49<36:13:38, 46.38it/s]
  1%|          | 15/2826 [11:35<36:12:52, 46.38it/s]
""",
        "progress bar",
        15,
        46.38,
        0.1,
    ),
    "a bar behind a dictionary that is torn": (
        """\
 50%|█████     | 500/1000 [05:00<05:00,  1.67it/s]
{'loss': 0.05, 'learning_rate': 2e-05, 'epoch': 3.77 60%|██████    | 600/1000 [06:05<28:12,  4.23s/it]
 65%|██████▌   | 650/1000 [06:38<03:50,  1.52it/s]
""",
        "progress bar",
        600,
        0.65,
        0.03,
    ),
    "a bar behind the dictionary of tokens": (
        """\
{'loss': 2.5, 'mean_token_accuracy': 0.7, 'epoch': 0.1}  1%|          | 1/100 [00:05<08:15,  5.00s/it]
{'loss': 2.4, 'mean_token_accuracy': 0.7, 'epoch': 0.2}  2%|▏         | 2/100 [00:09<07:21,  4.41s/it]
""",
        "progress bar",
        2,
        4.0,
        0.2,
    ),
    "two far bars of a cut log": (
        """\
 94%|█████████▎| 500/534 [01:01<00:04,  7.96it/s]
100%|█████████▉| 533/534 [01:05<00:00,  8.22it/s]
""",
        "progress bar",
        533,
        4 / 33,
        0.07,
    ),
    "a bar behind an evaluation's dictionary": (
        """\
 50%|█████     | 500/1000 [05:00<05:00,  1.67it/s]
{'eval_loss': 0.5, 'eval_runtime': 5.0, 'eval_steps_per_second': 2.5, 'epoch': 1.0} 60%|██████    | 600/1000 [06:05<04:00,  1.66it/s]
 70%|███████   | 700/1000 [07:05<03:00,  1.66it/s]
""",
        "progress bar",
        600,
        0.6,
        0.03,
    ),
}
