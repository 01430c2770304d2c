"""Logs of working trainers from public threads and repositories: the fifth part of the later rounds."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.thread_bar_logs import GoodLog

FIFTH_ROUND_LOGS: Final[dict[str, GoodLog]] = {
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
    "pod prefix titan": (
        """\
[pod/train-0/pytorch] [rank0]:[titan] 2025-06-16 22:30:10,100 - root - INFO - step:  1  loss:  6.1384  memory: 49.66GiB(52.28%)  tps: 1,002  tflops: 339.16  mfu: 34.29%
[pod/train-0/pytorch] [rank0]:[titan] 2025-06-16 22:30:12,430 - root - INFO - step:  2  loss:  6.1384  memory: 49.66GiB(52.28%)  tps: 7,034  tflops: 339.16  mfu: 34.29%
[pod/train-0/pytorch] [rank0]:[titan] 2025-06-16 22:30:14,760 - root - INFO - step:  3  loss:  6.1384  memory: 49.66GiB(52.28%)  tps: 7,030  tflops: 339.16  mfu: 34.29%
""",
        "torchtitan",
        2,
        2.32925789,
        0.001,
    ),
    "cloudwatch": (
        """\
2025-02-01T10:00:10.000Z\talgo-1-abcd\t iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
2025-02-01T10:00:14.000Z\talgo-1-abcd\t iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
2025-02-01T10:00:18.000Z\talgo-1-abcd\t iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        "megatron",
        2,
        4.021,
        1e-06,
    ),
    "carriage returns": (
        """\
 iteration        1/     100 | consumed samples:          64 | elapsed time per iteration (ms): 9201.1 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\r
 iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4021.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\r
 iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4019.0 | throughput per GPU (TFLOP/s/GPU): 240.1 | learning rate: 1.5E-06 | global batch size:    64 | lm loss: 1.19E+01 | loss scale: 1.0 | grad norm: 5.960 | number of skipped iterations:   0 | number of nan iterations:   0 |\r

""",
        "megatron",
        2,
        4.021,
        1e-06,
    ),
    "bars that move up": (
        """\
\x1b[A\r  1%|▏         | 1/100 [00:05<07:20, 5.50s/it]
\x1b[A\r  2%|▏         | 2/100 [00:09<07:20, 4.70s/it]
\x1b[A\r  3%|▏         | 3/100 [00:13<07:20, 4.44s/it]
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
    "unsloth": (
        """\
==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1
   \\\\   /|    Num examples = 100,000 | Num Epochs = 1 | Total steps = 100
  0%|          | 0/100 [00:00<?, ?it/s]Unsloth: Will smartly offload gradients to save VRAM!
  1%|▏         | 1/100 [00:05<07:20, 5.50s/it]
{'loss': 1.1, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}
  2%|▏         | 2/100 [00:09<07:20, 4.70s/it]
{'loss': 1.1, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}
  3%|▏         | 3/100 [00:13<07:20, 4.44s/it]
{'loss': 1.1, 'grad_norm': 0.1, 'learning_rate': 1e-05, 'epoch': 0.01}
""",
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
