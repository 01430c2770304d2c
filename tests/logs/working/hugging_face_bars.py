"""Progress bars of Hugging Face's trainers and those built on them."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "axolotl 2023, resumed": (
        """\
[2023-09-17 13:18:20,123] [INFO] [axolotl.utils.dataloader._len_est:264] [PID:11100] [RANK:0] packing_efficiency_estimate: 0.77 total_num_tokens per device: 26275


 32%|████████████████████████████████████▋                                                                             | 281/873 [25:36<52:46,  5.35s/it]

 32%|████████████████████████████████████▊                                                                             | 282/873 [25:40<49:29,  5.02s/it]

 32%|████████████████████████████████████▉                                                                             | 283/873 [25:44<47:06,  4.79s/it]
{'loss': 0.8635, 'learning_rate': 0.0001369640787949015, 'epoch': 0.97}

 33%|█████████████████████████████████████                                                                             | 284/873 [25:49<45:20,  4.62s/it]
""",
        "progress bar",
        282,
        4.25,
        0.3,
    ),
    "llama-cookbook, step and loss in the bar": (
        """\
Training Epoch: 1/3, step 0/50 completed (loss: 1.6359624624252):   2%|██        | 1/50 [00:21<17:41, 21.66s/it]
Training Epoch: 1/3, step 1/50 completed (loss: 1.5359624624252):   4%|████      | 2/50 [00:32<12:15, 15.31s/it]
Training Epoch: 1/3, step 2/50 completed (loss: 1.4359624624252):   6%|██████    | 3/50 [00:43<10:21, 13.22s/it]
""",
        "progress bar",
        2,
        11.0,
        1.0,
    ),
    "hf trainer under ray": (
        (
            "(head, rank=0, pid=4503)   0%|          | 0/100 [00:00<?, ?it/s]\r"
            "(head, rank=0, pid=4503)   1%|          | 1/100 [00:09<14:51,  9.00s/it]\n"
            "(head, rank=0, pid=4503)   2%|▏         | 2/100 [00:11<08:00,  4.90s/it]\r"
            "(head, rank=0, pid=4503)   3%|▎         | 3/100 [00:13<05:54,  3.66s/it]\n"
        ),
        "progress bar",
        2,
        2.0,
        0.1,
    ),
    "hf trainer 5 in a pod, values as text": (
        """\
2026-03-04T10:00:09.123456789Z   1%|          | 1/100 [00:09<14:51,  9.00s/it]
2026-03-04T10:00:09.223456789Z {'loss': '1.234', 'grad_norm': '0.5', 'learning_rate': '1e-05', 'epoch': '0.01'}
2026-03-04T10:00:11.123456789Z   2%|▏         | 2/100 [00:11<08:00,  4.90s/it]
2026-03-04T10:00:13.123456789Z   3%|▎         | 3/100 [00:13<05:54,  3.66s/it]
""",
        "progress bar",
        2,
        2.0,
        0.1,
    ),
    "hf trainer with MLPerf's lines behind the bar": (
        """\
  0%|          | 0/1024 [00:00<?, ?it/s]
  0%|          | 1/1024 [00:09<2:36:52,  9.20s/it]:::MLLOG {"namespace": "", "time_ms": 1728986230616, "event_type": "POINT_IN_TIME", "key": "train_loss", "value": 1.884, "metadata": {"file": "mlperf_logging_utils.py", "lineno": 166, "samples_count": 240}}
{'loss': 1.884, 'grad_norm': 0.6294034907656876, 'learning_rate': 0.0003865985597669478, 'epoch': 0.06}
  0%|          | 2/1024 [00:13<1:46:01,  6.15s/it]:::MLLOG {"namespace": "", "time_ms": 1728986234622, "event_type": "POINT_IN_TIME", "key": "train_loss", "value": 1.842, "metadata": {"file": "mlperf_logging_utils.py", "lineno": 166, "samples_count": 480}}
  0%|          | 3/1024 [00:17<1:28:44,  5.21s/it]
""",
        "progress bar",
        2,
        4.0,
        1.0,
    ),
    "diffusers with accelerate, hours to go": (
        """\
Steps:   0%|          | 0/500000 [00:00<?, ?it/s]
Steps:   0%|          | 1/500000 [02:44<22777:40:43, 164.00s/it, loss=0.36, lr=5e-6]n124-137-109:312247:326969 [0] NCCL INFO misc/socket.cc:829 -> 3
Steps:   0%|          | 2/500000 [04:28<17980:12:10, 129.46s/it, loss=0.31, lr=5e-6]
Steps:   0%|          | 3/500000 [06:12<16500:40:43, 118.84s/it, loss=0.33, lr=5e-6]
""",
        "progress bar",
        2,
        104.0,
        1.5,
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
        (
            "[stderr]  12%|█▏        | 6/50 [02:10<16:03, 21.89s/it][INFO|2025-12-14 10:52:48] llamafactory.data.sampler:143 >> \n"
            "[stderr]  14%|█▍        | 7/50 [02:32<15:41, 21.90s/it][INFO|2025-12-14 10:53:10] llamafactory.data.sampler:143 >> \n"
            "[stderr]  16%|█▌        | 8/50 [02:55<15:37, 22.31s/it][INFO|2025-12-14 10:53:33] llamafactory.data.sampler:143 >> \n"
            "[stderr]  18%|█▊        | 9/50 [03:17<15:09, 22.17s/it][INFO|2025-12-14 10:53:55] llamafactory.data.sampler:143 >> \n"
        ),
        "progress bar",
        7,
        21.95,
        1.1,
    ),
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
    "sft steps with postfix": (
        """\
Training:  10%|▉         | 498/5000 [06:27<57:41, 1.30it/s, loss=1.0931, dt(ms)=762.26]
Training:  10%|▉         | 499/5000 [06:28<57:41, 1.30it/s, loss=1.0911, dt(ms)=768.26]
Training:  10%|█         | 500/5000 [06:29<57:41, 1.30it/s, loss=1.0921, dt(ms)=769.26]
""",
        "progress bar",
        499,
        0.77,
        0.05,
    ),
    "openrlhf": (
        """\
Train epoch:   0%|          | 0/1 [00:00<?, ?it/s]
Train step of epoch 0:   0%|          | 0/1000 [00:00<?, ?it/s]
Train step of epoch 0:   0%|          | 1/1000 [00:09<2:34:07,  9.26s/it, gpt_loss=1.21, loss_mean=1.21, lr=1e-8]
Train step of epoch 0:   0%|          | 2/1000 [00:15<2:04:41,  7.50s/it, gpt_loss=1.20, loss_mean=1.21, lr=2e-8]
Train step of epoch 0:   0%|          | 3/1000 [00:21<1:54:05,  6.87s/it, gpt_loss=1.19, loss_mean=1.20, lr=3e-8]
""",
        "progress bar",
        2,
        6.2,
        0.3,
    ),
    "diffusers": (
        """\
Steps:   0%|          | 1/1000 [00:04<1:12:30,  4.36s/it, loss=0.0311, lr=0.0001]
Steps:   0%|          | 2/1000 [00:05<43:44,  2.63s/it, loss=0.0311, lr=0.0001]
Steps:   0%|          | 3/1000 [00:07<34:10,  2.06s/it, loss=0.0211, lr=0.0001]
""",
        "progress bar",
        2,
        1.4,
        0.2,
    ),
    "axolotl 2025": (
        """\
[2025-09-03 11:02:12,104] [INFO] [axolotl.utils.samplers.multipack:412] [PID:812] [RANK:0] gather_len_batches: [174, 174]
  1%|          | 1/174 [00:07<21:37,  7.50s/it]
{'loss': 1.4, 'grad_norm': 0.39, 'learning_rate': 2e-05, 'memory/max_mem_active(gib)': 21.32, 'memory/max_mem_allocated(gib)': 21.32, 'memory/device_mem_reserved(gib)': 23.9, 'tokens_per_second_per_gpu': 3020.11, 'epoch': 0.01}
  1%|          | 2/174 [00:12<17:51,  6.23s/it]
  2%|▏         | 3/174 [00:17<16:10,  5.67s/it]
""",
        "progress bar",
        2,
        5.3,
        0.3,
    ),
    "llama-factory console": (
        """\
[INFO|trainer.py:2414] 2025-01-03 12:00:00,123 >> ***** Running training *****
[INFO|trainer.py:2420] 2025-01-03 12:00:00,123 >>   Total optimization steps = 93
  1%|          | 1/93 [00:11<17:01, 11.10s/it]
  2%|▏         | 2/93 [00:21<16:04, 10.60s/it]
[INFO|2025-01-03 12:00:33] llamafactory.train.callbacks:143 >> {'loss': 1.3012, 'learning_rate': 5.0000e-06, 'epoch': 0.02, 'throughput': 2330.41}
{'loss': 1.3012, 'grad_norm': 1.2, 'learning_rate': 5e-06, 'epoch': 0.02, 'num_input_tokens_seen': 24576}
  3%|▎         | 3/93 [00:31<15:40, 10.45s/it]
""",
        "progress bar",
        2,
        10.2,
        0.3,
    ),
    "hf 5 strings": (
        """\
  0%|          | 1/300 [00:05<27:24,  5.50s/it]
{'loss': '2.011', 'grad_norm': '1.9', 'learning_rate': '0', 'epoch': '0.003'}
  1%|          | 2/300 [00:09<23:20,  4.70s/it]
{'loss': '2.001', 'grad_norm': '1.8', 'learning_rate': '6.6e-07', 'epoch': '0.007'}
  1%|          | 3/300 [00:13<21:57,  4.44s/it]
{'loss': '1.981', 'grad_norm': '1.8', 'learning_rate': '1.3e-06', 'epoch': '0.010'}
""",
        "progress bar",
        2,
        4.13,
        0.3,
    ),
    "hf with checkpoints and evaluation": (
        """\
  3%|▎         | 99/3000 [04:57<2:25:03,  3.00s/it]
  3%|▎         | 100/3000 [05:00<2:25:00,  3.00s/it]
  0%|          | 0/25 [00:00<?, ?it/s]
  8%|▊         | 2/25 [00:00<00:05,  4.12it/s]
100%|██████████| 25/25 [00:07<00:00,  3.22it/s]
{'eval_loss': 1.02, 'eval_runtime': 7.9, 'eval_samples_per_second': 25.0, 'eval_steps_per_second': 3.2, 'epoch': 0.1}
[INFO|trainer.py:3503] 2024-03-03 10:00:00,000 >> Saving model checkpoint to out/checkpoint-100
  3%|▎         | 101/3000 [05:23<7:01:12,  8.72s/it]
  3%|▎         | 102/3000 [05:26<5:37:44,  6.99s/it]
  3%|▎         | 103/3000 [05:29<4:39:30,  5.79s/it]
""",
        "progress bar",
        100,
        3.0,
        0.2,
    ),
    "accelerate stderr tags": (
        """\
stderr:   1%|▏         | 1/100 [00:05<07:20, 5.50s/it]
stderr:   2%|▏         | 2/100 [00:09<07:20, 4.70s/it]
stderr:   3%|▏         | 3/100 [00:13<07:20, 4.44s/it]
""",
        "progress bar",
        2,
        4.13,
        0.3,
    ),
    "hf dictionary at both": (
        """\
  1%|▏         | 1/100 [00:05<07:20, 5.50s/it]
{'loss': 1.1, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}
{'loss': 1.1, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}

  2%|▏         | 2/100 [00:09<07:20, 4.70s/it]
{'loss': 1.2, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}
{'loss': 1.2, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}

  3%|▏         | 3/100 [00:13<07:20, 4.44s/it]
{'loss': 1.3, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}
{'loss': 1.3, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}

""",
        "progress bar",
        2,
        4.13,
        0.3,
    ),
    "unsloth": (
        (
            "==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1\n"
            "   \\\\   /|    Num examples = 100,000 | Num Epochs = 1 | Total steps = 100\n"
            "  0%|          | 0/100 [00:00<?, ?it/s]Unsloth: Will smartly offload gradients to save VRAM!\n"
            "  1%|▏         | 1/100 [00:05<07:20, 5.50s/it]\n"
            "{'loss': 1.1, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}\n"
            "  2%|▏         | 2/100 [00:09<07:20, 4.70s/it]\n"
            "{'loss': 1.1, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}\n"
            "  3%|▏         | 3/100 [00:13<07:20, 4.44s/it]\n"
            "{'loss': 1.1, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}\n"
        ),
        "progress bar",
        2,
        4.13,
        0.3,
    ),
    "trl grpo": (
        """\
  1%|▏         | 1/100 [00:05<07:20, 5.50s/it]
{'loss': 0.0, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'num_tokens': 4242.0, 'completions/mean_length': 120.5, 'rewards/f/mean': 0.2, 'reward': 0.2, 'kl': 0.0, 'step_time': 4.2, 'epoch': 0.01}
  2%|▏         | 2/100 [00:09<07:20, 4.70s/it]
{'loss': 0.0, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'num_tokens': 4242.0, 'completions/mean_length': 120.5, 'rewards/f/mean': 0.2, 'reward': 0.2, 'kl': 0.0, 'step_time': 4.2, 'epoch': 0.01}
  3%|▏         | 3/100 [00:13<07:20, 4.44s/it]
{'loss': 0.0, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'num_tokens': 4242.0, 'completions/mean_length': 120.5, 'rewards/f/mean': 0.2, 'reward': 0.2, 'kl': 0.0, 'step_time': 4.2, 'epoch': 0.01}
""",
        "progress bar",
        2,
        4.13,
        0.3,
    ),
    "trainer that counts tokens": (
        """\
{'loss': 2.5, 'grad_norm': 6.8, 'learning_rate': 5e-05, 'epoch': 0.01, 'num_input_tokens_seen': 196608, 'train_runtime': 24.3, 'train_tokens_per_second': 8090.9}
  1%|1         | 1/100 [00:24<40:05, 24.30s/it]
{'loss': 2.4, 'grad_norm': 6.1, 'learning_rate': 4.9e-05, 'epoch': 0.02, 'num_input_tokens_seen': 393216, 'train_runtime': 28.3, 'train_tokens_per_second': 13894.6}
  2%|2         | 2/100 [00:28<20:02, 12.36s/it]
{'loss': 2.3, 'grad_norm': 5.2, 'learning_rate': 4.8e-05, 'epoch': 0.03, 'num_input_tokens_seen': 589824, 'train_runtime': 32.3, 'train_tokens_per_second': 18260.8}
  3%|3         | 3/100 [00:32<13:49,  8.55s/it]
""",
        "progress bar",
        2,
        4.0,
        0.1,
    ),
    "the middle of a trainer's bar": (
        """\
 45%|████▌     | 45/100 [02:43<03:19,  3.62s/it]
 46%|████▌     | 46/100 [02:47<03:14,  3.60s/it]
 47%|████▋     | 47/100 [02:50<03:11,  3.61s/it]
""",
        "progress bar",
        46,
        3.5533333333333346,
        1e-06,
    ),
    "passes of a step that generates first": (
        """\
  0%|          | 0/940 [00:00<?, ?it/s]
[2025-09-12 11:25:41,522] [INFO] [logging.py:107:log_dist] [Rank 0] time (ms) | fwd: 91977.90 | bwd: 95568.63 | bwd_inner: 95290.03 | bwd_allreduce: 277.10 | step: 101.80
  0%|          | 1/940 [05:41<88:59:46, 341.20s/it]
[2025-09-12 11:30:59,517] [INFO] [logging.py:107:log_dist] [Rank 0] time (ms) | fwd: 91841.93 | bwd: 95269.34 | bwd_inner: 94990.74 | bwd_allreduce: 277.10 | step: 101.80
  0%|          | 2/940 [10:59<85:20:41, 327.55s/it]
[2025-09-12 11:36:15,390] [INFO] [logging.py:107:log_dist] [Rank 0] time (ms) | fwd: 92921.31 | bwd: 95043.38 | bwd_inner: 94764.78 | bwd_allreduce: 277.10 | step: 101.80
  0%|          | 3/940 [16:15<83:51:58, 322.22s/it]
""",
        "progress bar",
        2,
        318.0,
        1.0,
    ),
    "sd-scripts, whose bar is not smoothed": (
        """\
steps:   0%|               | 1/17824 [00:05<25:00:06,  5.05s/it, avr_loss=0.123]
steps:   0%|               | 2/17824 [00:06<16:15:45,  3.29s/it, avr_loss=0.123]
steps:   0%|               | 3/17824 [00:08<13:17:59,  2.69s/it, avr_loss=0.123]
steps:   0%|               | 4/17824 [00:09<11:50:34,  2.39s/it, avr_loss=0.123]
steps:   0%|               | 5/17824 [00:11<10:57:31,  2.21s/it, avr_loss=0.123]
steps:   0%|               | 6/17824 [00:12<10:22:08,  2.10s/it, avr_loss=0.123]
""",
        "progress bar",
        2,
        1.52,
        0.04,
    ),
}
