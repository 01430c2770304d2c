"""Logs of torchtitan and nanotron."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "nanotron 2025, resumed": (
        """\
10/18/2025 16:31:56 [INFO|DP=0|PP=0|TP=0]: iteration: 327281 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 19.5K | tokens_per_sec: 13.4K | tokens_per_sec_per_gpu: 6.7K | global_batch_size: 64 | lm_loss: 2.38 | lr: 1e-05 | model_tflops_per_gpu: 22.3 | hardware_tflops_per_gpu: 22.3 | grad_norm: 1.25
10/18/2025 16:32:07 [INFO|DP=0|PP=0|TP=0]: iteration: 327282 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K | global_batch_size: 64 | lm_loss: 2.35 | lr: 1e-05 | model_tflops_per_gpu: 38.3 | hardware_tflops_per_gpu: 38.3 | grad_norm: 1.22
10/18/2025 16:32:19 [INFO|DP=0|PP=0|TP=0]: iteration: 327283 / 378950 | consumed_tokens: 85.8G | elapsed_time_per_iteration_ms: 11.5K | tokens_per_sec: 22.8K | tokens_per_sec_per_gpu: 11.4K | global_batch_size: 64 | lm_loss: 2.51 | lr: 1e-05 | model_tflops_per_gpu: 38.3 | hardware_tflops_per_gpu: 38.3 | grad_norm: 1.21
""",
        "nanotron",
        327282,
        11.5,
        0.0,
    ),
    "nanotron 2024, with the host's name": (
        """\
01/17/2024 13:47:27 [INFO|DP=0|PP=0|TP=0|ip-10-0-160-225]: iteration: 1 / 1000 | consumed_tokens: 640 | elapsed_time_per_iteration_ms: 451 | tokens_per_sec: 1.42K | tokens_per_sec_per_gpu: 178 | global_batch_size: 20 | lm_loss: 10.6 | lr: 1e-05 | model_tflops_per_gpu: 0.00087 | hardware_tflops_per_gpu: 0.00087 | grad_norm: 0.515 | cuda_memory_allocated: 75.2M | cuda_max_memory_reserved: 547M | hd_total_memory_tb: 312G | hd_used_memory_tb: 61.8G | hd_free_memory_tb: 250G
01/17/2024 13:47:27 [INFO|DP=0|PP=0|TP=0|ip-10-0-160-225]: iteration: 2 / 1000 | consumed_tokens: 1.28K | elapsed_time_per_iteration_ms: 41.2 | tokens_per_sec: 15.5K | tokens_per_sec_per_gpu: 1.94K | global_batch_size: 20 | lm_loss: 10.6 | lr: 1e-05 | model_tflops_per_gpu: 0.0095 | hardware_tflops_per_gpu: 0.00951 | grad_norm: 0.507
01/17/2024 13:47:27 [INFO|DP=0|PP=0|TP=0|ip-10-0-160-225]: iteration: 3 / 1000 | consumed_tokens: 1.92K | elapsed_time_per_iteration_ms: 39.4 | tokens_per_sec: 16.2K | tokens_per_sec_per_gpu: 2.03K | global_batch_size: 20 | lm_loss: 10.6 | lr: 1e-05 | model_tflops_per_gpu: 0.00992 | hardware_tflops_per_gpu: 0.00992 | grad_norm: 0.514
""",
        "nanotron",
        2,
        0.0412,
        0.0,
    ),
    "torchtitan 2026, all ranks without a label": (
        """\
[titan] 2026-02-24 19:46:15,860 - root - INFO - step:  3  loss:  8.11090  grad_norm: 21.1250  memory: 66.91GiB(37.51%)  tps: 4,020  tflops: 125.92  mfu: 5.60%
[titan] 2026-02-24 19:46:15,860 - root - INFO - step:  3  loss:  8.11090  grad_norm: 21.1250  memory: 66.91GiB(37.51%)  tps: 4,021  tflops: 125.93  mfu: 5.60%
[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,049  tflops: 314.68  mfu: 13.99%
[titan] 2026-02-24 19:46:19,145 - root - INFO - step:  5  loss:  7.07623  grad_norm: 46.5000  memory: 66.91GiB(37.51%)  tps: 10,007  tflops: 313.36  mfu: 13.93%
[titan] 2026-02-24 19:46:19,145 - root - INFO - step:  5  loss:  7.07623  grad_norm: 46.5000  memory: 66.91GiB(37.51%)  tps: 10,007  tflops: 313.36  mfu: 13.93%
""",
        "torchtitan",
        4,
        1.6304109861677778,
        0.0,
    ),
    "torchtitan on CPUs, through srun --label": (
        """\
0: [rank0]:[titan] 2025-07-21 15:57:40,700 - root - INFO - Trainer is initialized with local batch size 8, global batch size 64, gradient accumulation steps 1, sequence length 2048, total steps 10 (warmup 2)
0: [rank0]:[titan] 2025-07-21 15:57:41,300 - root - INFO - step:  1  loss:  8.1392  grad_norm:  1.4422  memory:  0.00GiB(0.00%)  tps: 3,768  tflops: 0.35  mfu: 0.03%
0: [rank0]:[titan] 2025-07-21 15:57:42,774 - root - INFO - step:  2  loss:  7.9925  grad_norm:  2.6422  memory:  0.00GiB(0.00%)  tps: 30,768  tflops: 3.15  mfu: 0.32%
0: [rank0]:[titan] 2025-07-21 15:57:43,242 - root - INFO - step:  3  loss:  7.6671  grad_norm:  2.5457  memory:  0.00GiB(0.00%)  tps: 31,051  tflops: 3.19  mfu: 0.32%
""",
        "torchtitan",
        2,
        0.5325013000520021,
        0.0,
    ),
    "torchtitan in colours, among warnings": (
        (
            "[rank0]:[titan] 2025-03-12 11:10:20,100 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss:  8.2250  \x1b[36mmemory:  1.41GiB(1.79%)  \x1b[34mtps: 13,831  \x1b[36mtflops: 1.36  \x1b[35mmfu: 0.13%\x1b[39m\n"
            "[rank0]:[titan] 2025-03-12 11:10:21,603 - root - WARNING - Dataset c4_test is being re-looped\n"
            "[rank0]:[titan] 2025-03-12 11:10:21,667 - root - INFO - \x1b[31mstep:  2  \x1b[32mloss:  8.1861  \x1b[36mmemory:  1.41GiB(1.79%)  \x1b[34mtps: 209,645  \x1b[36mtflops: 19.86  \x1b[35mmfu: 2.01%\x1b[39m\n"
            "[rank0]:[titan] 2025-03-12 11:10:21,751 - root - INFO - \x1b[31mstep:  3  \x1b[32mloss:  8.1657  \x1b[36mmemory:  1.41GiB(1.79%)  \x1b[34mtps: 197,367  \x1b[36mtflops: 18.69  \x1b[35mmfu: 1.89%\x1b[39m\n"
        ),
        "torchtitan",
        2,
        0.07815116029478404,
        0.0,
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
    "torchtitan, all ranks and no rank's name": (
        """\
[titan] 2026-02-24 19:46:15,870 - root - INFO - step:  3  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,044  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:15,870 - root - INFO - step:  3  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,044  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:15,870 - root - INFO - step:  3  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,043  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:17,508 - root - INFO - step:  4  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,049  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:19,145 - root - INFO - step:  5  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,007  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:19,145 - root - INFO - step:  5  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,007  tflops: 314.71  mfu: 13.99%
[titan] 2026-02-24 19:46:19,145 - root - INFO - step:  5  loss:  7.62585  grad_norm: 26.6250  memory: 66.91GiB(37.51%)  tps: 10,008  tflops: 314.71  mfu: 13.99%
""",
        "torchtitan",
        4,
        1.630248756,
        0.001,
    ),
    "torchtitan gc and profiler": (
        """\
[rank0]:[titan] 2025-06-16 22:30:48,735 - root - INFO - [GC] Peforming periodical GC collection. 0.06 seconds.
[rank0]:[titan] 2025-06-16 22:30:50,322 - root - INFO - step: 200  loss:  6.1384  memory: 49.66GiB(52.28%)  tps: 11,712  tflops: 339.16  mfu: 34.29%
[rank0]:[titan] 2025-06-16 22:30:50,758 - root - INFO - Dumping profiler traces at step 200
[rank0]:[titan] 2025-06-16 22:30:50,976 - root - INFO - Finished dumping profiler traces in 0.22 seconds
[rank0]:[titan] 2025-06-16 22:31:04,970 - root - INFO - step: 210  loss:  6.0388  memory: 49.66GiB(52.28%)  tps: 11,186  tflops: 323.92  mfu: 32.75%
[rank0]:[titan] 2025-06-16 22:31:18,934 - root - INFO - step: 220  loss:  6.0348  memory: 49.66GiB(52.28%)  tps: 11,736  tflops: 339.82  mfu: 34.36%
""",
        "torchtitan",
        210,
        1.464688003,
        0.001,
    ),
    "nanotron under torchrun's redirect": (
        """\
[default0]:07/06/2024 15:49:30 [INFO|DP=0|PP=0|TP=0|ip-26-0-161-221]: iteration: 1 / 20 | consumed_tokens: 0.131M | elapsed_time_per_iteration_ms: 25.1K | tokens_per_sec: 5.22K | tokens_per_sec_per_gpu: 653 | global_batch_size: 64 | lm_loss: 11.3 | lr: 0.0001 | model_tflops_per_gpu: 9.33 | hardware_tflops_per_gpu: 9.33 | grad_norm: 25.3 | cuda_memory_allocated: 1.35G | cuda_max_memory_reserved: 3.86G | hd_total_memory_tb: 312G | hd_used_memory_tb: 65.6G | hd_free_memory_tb: 246G
[default0]:07/06/2024 15:49:34 [INFO|DP=0|PP=0|TP=0|ip-26-0-161-221]: iteration: 2 / 20 | consumed_tokens: 0.262M | elapsed_time_per_iteration_ms: 4.02K | tokens_per_sec: 32.6K | tokens_per_sec_per_gpu: 4.08K | global_batch_size: 64 | lm_loss: 11.3 | lr: 0.0001 | model_tflops_per_gpu: 9.33 | hardware_tflops_per_gpu: 9.33 | grad_norm: 25.3 | cuda_memory_allocated: 1.35G | cuda_max_memory_reserved: 3.86G | hd_total_memory_tb: 312G | hd_used_memory_tb: 65.6G | hd_free_memory_tb: 246G
[default0]:07/06/2024 15:49:38 [INFO|DP=0|PP=0|TP=0|ip-26-0-161-221]: iteration: 3 / 20 | consumed_tokens: 0.393M | elapsed_time_per_iteration_ms: 3.98K | tokens_per_sec: 32.9K | tokens_per_sec_per_gpu: 4.12K | global_batch_size: 64 | lm_loss: 11.3 | lr: 0.0001 | model_tflops_per_gpu: 9.33 | hardware_tflops_per_gpu: 9.33 | grad_norm: 25.3 | cuda_memory_allocated: 1.35G | cuda_max_memory_reserved: 3.86G | hd_total_memory_tb: 312G | hd_used_memory_tb: 65.6G | hd_free_memory_tb: 246G
""",
        "nanotron",
        2,
        4.02,
        0.011,
    ),
    "torchtitan, loss minus one": (
        """\
[rank0]:[titan] 2025-05-28 21:13:37,816 - root - INFO - step:  1  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 40  tflops: 1.81  mfu: 0.58%
[rank0]:[titan] 2025-05-28 21:14:39,054 - root - INFO - step:  2  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 268  tflops: 1.81  mfu: 0.58%
[rank0]:[titan] 2025-05-28 21:15:40,293 - root - INFO - step:  3  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 268  tflops: 1.81  mfu: 0.58%
[rank0]:[titan] 2025-05-28 21:16:41,533 - root - INFO - step:  4  loss: -1.0000  memory: 42.78GiB(54.06%)  tps: 267  tflops: 1.81  mfu: 0.58%
""",
        "torchtitan",
        2,
        61.134328358,
        0.3,
    ),
    "torchtitan resumed": (
        """\
[rank0]:2025-08-01 10:00:12,100 - root - INFO - step: 1001  loss:  3.1055  grad_norm:  0.44  memory: 49.66GiB(52.28%)  tps: 1,120  tflops: 339.16  mfu: 34.29%
[rank0]:2025-08-01 10:00:13,500 - root - INFO - step: 1002  loss:  3.1055  grad_norm:  0.44  memory: 49.66GiB(52.28%)  tps: 11,700  tflops: 339.16  mfu: 34.29%
[rank0]:2025-08-01 10:00:14,902 - root - INFO - step: 1003  loss:  3.1055  grad_norm:  0.44  memory: 49.66GiB(52.28%)  tps: 11,690  tflops: 339.16  mfu: 34.29%
""",
        "torchtitan",
        1002,
        1.40034188,
        0.001,
    ),
    "colored torchtitan": (
        (
            "[rank0]:[titan] 2025-05-16 12:00:10,100 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.2  \x1b[38;2;180;60;0mgrad_norm:  1.30  \x1b[38;2;54;234;195mmemory: 27.34GiB(28.78%)  \x1b[34mtps: 1,002  \x1b[36mtflops: 407.35  \x1b[35mmfu: 41.19%\x1b[39m\n"
            "[rank0]:[titan] 2025-05-16 12:00:12,430 - root - INFO - \x1b[31mstep:  2  \x1b[32mloss: 12.1  \x1b[38;2;180;60;0mgrad_norm:  1.30  \x1b[38;2;54;234;195mmemory: 27.34GiB(28.78%)  \x1b[34mtps: 7,034  \x1b[36mtflops: 407.35  \x1b[35mmfu: 41.19%\x1b[39m\n"
            "[rank0]:[titan] 2025-05-16 12:00:14,760 - root - INFO - \x1b[31mstep:  3  \x1b[32mloss: 12.0  \x1b[38;2;180;60;0mgrad_norm:  1.30  \x1b[38;2;54;234;195mmemory: 27.34GiB(28.78%)  \x1b[34mtps: 7,030  \x1b[36mtflops: 407.35  \x1b[35mmfu: 41.19%\x1b[39m\n"
        ),
        "torchtitan",
        2,
        2.32925789,
        0.001,
    ),
    "nanotron 2025 with units": (
        """\
[default0]:02/18/2025 17:40:30 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-100]: iteration: 1 / 100 | consumed_tokens: 131K | time_per_iteration_ms: 6.1K | tokens_per_sec: 21.5K | tokens_per_sec_per_gpu: 2.69K | global_batch_size: 64 | lm_loss: 12.1 | lr: 3e-05 | model_tflops_per_gpu: 91.2 | grad_norm: 4.1 | eta: 0:05:10
[default0]:02/18/2025 17:40:33 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-100]: iteration: 2 / 100 | consumed_tokens: 262K | time_per_iteration_ms: 3.12K | tokens_per_sec: 42K | tokens_per_sec_per_gpu: 5.25K | global_batch_size: 64 | lm_loss: 12.1 | lr: 3e-05 | model_tflops_per_gpu: 91.2 | grad_norm: 4.1 | eta: 0:05:10
[default0]:02/18/2025 17:40:36 [INFO|DP=0|PP=0|TP=0|ip-26-0-160-100]: iteration: 3 / 100 | consumed_tokens: 393K | time_per_iteration_ms: 3.1K | tokens_per_sec: 42.3K | tokens_per_sec_per_gpu: 5.29K | global_batch_size: 64 | lm_loss: 12.1 | lr: 3e-05 | model_tflops_per_gpu: 91.2 | grad_norm: 4.1 | eta: 0:05:10
""",
        "nanotron",
        2,
        3.12,
        0.011,
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
    "torchtitan without TFLOPs": (
        """\
[rank0]:[titan] 2025-08-19 10:41:11,406 - root - INFO - step:  1  loss:  8.2011  memory:  5.12GiB(6.46%)  tps: 112
[rank0]:[titan] 2025-08-19 10:41:11,906 - root - INFO - step:  2  loss:  8.1722  memory:  5.12GiB(6.46%)  tps: 16,384
[rank0]:[titan] 2025-08-19 10:41:12,406 - root - INFO - step:  3  loss:  8.0950  memory:  5.12GiB(6.46%)  tps: 16,384
""",
        "torchtitan",
        2,
        1.0,
        1e-06,
    ),
    "torchtrain": (
        """\
[rank0]:2024-03-04 16:40:13,768 - root - INFO - step:  1  loss: 10.5198  iter:  2.7184  data: 0.0412  lr: 0.0004
[rank0]:2024-03-04 16:40:14,094 - root - INFO - step:  2  loss: 10.1623  iter:  0.3127  data: 0.0039  lr: 0.0008
[rank0]:2024-03-04 16:40:14,417 - root - INFO - step:  3  loss:  9.7468  iter:  0.3102  data: 0.0037  lr: 0.0008
[rank0]:2024-03-04 16:40:14,742 - root - INFO - step:  4  loss:  9.3212  iter:  0.3119  data: 0.0041  lr: 0.0008
""",
        "torchtitan",
        2,
        0.3127,
        1e-06,
    ),
    "torchtune with the time of a step": (
        """\
Step 1 | loss:6.40 lr:5e-07 time_per_step_s:60.2 tokens_per_second_per_gpu:31 grad_norm:97.5
Step 2 | loss:1.58 lr:1e-06 time_per_step_s:20.6 tokens_per_second_per_gpu:94 grad_norm:131.0
Step 3 | loss:0.94 lr:1.5e-06 time_per_step_s:20.5 tokens_per_second_per_gpu:112 grad_norm:19.9
""",
        "torchtune",
        2,
        20.6,
        0.01,
    ),
}
