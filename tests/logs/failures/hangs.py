"""Collective operations and others that were waited for in vain."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "watchdog": (
        "[rank3]:[E304 10:00:00.123456789 ProcessGroupNCCL.cpp:2084] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.\nterminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [Rank 3] Process group watchdog thread terminated with exception: [Rank 3] Watchdog caught collective operation timeout",
        "HUNG",
        "a collective operation timed out",
        "[rank3]:",
    ),
    "barrier": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: [Rank 0] Ranks 3 failed to pass monitoredBarrier in 300000 ms',
        "HUNG",
        "a collective operation timed out",
        "RuntimeError",
    ),
    "watchdog, hang": (
        "[rank3]:[F304 10:00:00.1 ProcessGroupNCCL.cpp:1554] [PG ID 0 PG GUID 0(default_pg) Rank 3] [PG ID 0 PG GUID 0(default_pg) Rank 3] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
        "HUNG",
        "a collective operation timed out",
        "[rank3]",
    ),
    "flight recorder": (
        "[rank0]:[E304 10:00:00.1 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0 Rank 0] Received a dump signal due to a collective timeout from rank 3 and we will try our best to dump the debug info.",
        "HUNG",
        "a collective operation timed out",
        "[rank0]:[E304",
    ),
    "store, socket timeout": (
        'Traceback (most recent call last):\n  File "/opt/conda/lib/python3.7/site-packages/torch/distributed/elastic/utils/store.py", line 31, in get_all\n    data = store.get(f"{prefix}{idx}")\nRuntimeError: Socket Timeout',
        "HUNG",
        "waiting for another process timed out",
        "RuntimeError: Socket Timeout",
    ),
    "gloo, barrier": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete',
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: [/pytorch",
    ),
    "gloo 30 min": (
        '[rank2]: Traceback (most recent call last):\n[rank2]:   File "/opt/train.py", line 9, in <module>\n[rank2]:     main()\n[rank2]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete',
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: [/pytorch/third_party/gloo",
    ),
    "timeout at nccl work": (
        "[rank14]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 14] Timeout at NCCL work: 15734, last enqueued NCCL work: 15735, last completed NCCL work: 15733.\n[rank14]:[E ProcessGroupNCCL.cpp:583] [Rank 14] To avoid data inconsistency, we are taking the entire process down.",
        "HUNG",
        "a collective operation timed out",
        "[rank14]:[E ProcessGroupNCCL.cpp:1537] [",
    ),
    "store get": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.distributed.DistStoreError: wait timeout after 1800000ms, keys: /default_pg/0//cuda//0',
        "HUNG",
        "waiting for another process timed out",
        "torch.distributed.DistStoreError: wait t",
    ),
    "deepep": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: DeepEP error: timeout (dispatch CPU)',
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: DeepEP error: timeout (dis",
    ),
    "timeout store": (
        "[rank7]: Traceback (most recent call last):\n[rank7]:   File \"/opt/train.py\", line 9, in <module>\n[rank7]:     main()\n[rank7]: torch.distributed.DistBackendError: [7] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
        "HUNG",
        "waiting for another process timed out",
        "torch.distributed.DistBackendError: [7] ",
    ),
    "stalled ranks": (
        "[2025-01-01 00:00:00: W /opt/horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. This may indicate that different ranks are trying to submit different tensors or that only subset of ranks is submitting tensors, which will cause deadlock. \nMissing ranks:\n3: [x]",
        "HUNG",
        "waiting for another process timed out",
        "[2025-01-01 00:00:00: W /opt/horovod",
    ),
    "heartbeat": (
        "[2025-01-01 00:00:00,000] [WARNING] [RankMonitorServer:3] Did not get subsequent heartbeat. Waited 600.00 seconds.\n[2025-01-01 00:00:01,000] [ERROR] [ft_launcher@gpu01] failed (exitcode: -15) local_rank: 3 (pid: 1203) of binary: /usr/bin/python3",
        "HUNG",
        "waiting for another process timed out",
        "[2025-01-01 00:00:00,000] [WARNING] [Ran",
    ),
    "section timed out": (
        "[ERROR] [RankMonitorServer:3] Hang detected: section 'step' timed out after 180 seconds",
        "HUNG",
        "waiting for another process timed out",
        "[ERROR] [RankMonitorServer:3] Hang detec",
    ),
    "watchdog exception only": (
        "[rank7]:[E419 10:42:28.861967180 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID 9 Rank 7] Exception (either an error or timeout) detected by watchdog at work: 4486, last enqueued NCCL work: 4489, last completed NCCL work: 4485.\n[rank7]:[E419 10:42:29.105 ProcessGroupNCCL.cpp:1834] [PG ID 2 PG GUID 9 Rank 7] Timeout at NCCL work: 4486, last enqueued NCCL work: 4489, last completed NCCL work: 4485.\n[rank7]:[E419 10:42:29.105 ProcessGroupNCCL.cpp:630] [Rank 7] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n[rank7]:[E419 10:42:29.105 ProcessGroupNCCL.cpp:636] [Rank 7] To avoid data inconsistency, we are taking the entire process down.",
        "HUNG",
        "a collective operation timed out",
        "[rank7]:[E419 10:42:29.105 ProcessGroupN",
    ),
    "watchdog stuck": (
        "W0922 18:51:16.217000 1197897 torch/distributed/run.py:774] *****************************************\n[rank1]:[E922 19:07:21.891247234 ProcessGroupNCCL.cpp:1870] [PG ID 0 PG GUID 0(default_pg) Rank 1] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog, and could be triggered by another thread holding the GIL inside a CUDA api (for example, CudaEventDestroy), or other deadlock-prone behaviors.If you suspect the watchdog is not actually stuck and a longer timeout would help, you can either increase the timeout (TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC) to a larger value or disable the heartbeat monitor (TORCH_NCCL_ENABLE_MONITORING=0).",
        "HUNG",
        "a collective operation timed out",
        "[rank1]:[E922 19:07:21.891247234 Process",
    ),
    "watchdog pid prefix": (
        "[80746] [rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n[80746] [rank0]:[E321 02:07:08.465150152 ProcessGroupNCCL.cpp:1664] [PG 1 Rank 0] Exception (either an error or timeout) detected by watchdog at work: 1580, last enqueued NCCL work: 1582, last completed NCCL work: 1579.",
        "HUNG",
        "a collective operation timed out",
        "[80746] [rank0]:[E321 02:07:08.408271257",
    ),
    "ezpz watchdog": (
        "[2026-05-23 21:06:37][I][components/metrics:526:log] step: 36  loss: 11.86712  grad_norm: 1.7081  memory: 44.18GiB(69.05%)  tps: 3,960  tflops: 44.31  mfu: 14.86%\n[2026-05-23 21:06:41][I][components/metrics:526:log] step: 37  loss: 11.80276  grad_norm: 1.7319  memory: 44.18GiB(69.05%)  tps: 3,919  tflops: 43.85  mfu: 14.70%\n[2026-05-23 21:36:41][E][ezpz/launch:124:_run_with_watchdog] Watchdog: no output for 1800.0s (timeout=1800s). Sending SIGTERM to PID 191892.",
        "HUNG",
        "waiting for another process timed out",
        "[2026-05-23 21:36:41][E][ezpz/launch:124",
    ),
    "watchdog broken": (
        "[rank1]:[E1114 09:50:59.789610635 ProcessGroupNCCL.cpp:683] \n[Rank 1] Watchdog caught collective operation timeout: \nWorkNCCL(SeqNum=1, OpType=ALLGATHER, NumelIn=1, NumelOut=2, Timeout(ms)=600000) \nran for 600067 milliseconds before timing out.",
        "HUNG",
        "a collective operation timed out",
        "[Rank 1] Watchdog caught collective oper",
    ),
    "dump signal": (
        "[rank6]:[E703 21:51:54.112142364 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID 0(default_pg) Rank 6] Received a dump signal due to a collective timeout from  rank 7 and we will try our best to dump the debug info. Last enqueued NCCL work: 56116, last completed NCCL work: 56116.This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks.",
        "HUNG",
        "a collective operation timed out",
        "[rank6]:[E703 21:51:54.112142364 Process",
    ),
    "watchdog in a pane": (
        "[rank2]:[E816 00:34:01.133910474 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=137429, OpType=_ALLGATHER_BA[451/1919]\nn=71552, NumelOut=572416, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n[rank2]:[E816 00:34:01.140650897 ProcessGroupNCCL.cpp:2168] [PG ID 1 PG GUID 1 Rank 2]  failure detected by watchdog at work sequence id: 137429 PG status: last enqueue\nd work: 137429, last completed work: 137428",
        "HUNG",
        "a collective operation timed out",
        "[rank2]:[E816 00:34:01.133910474 Process",
    ),
    "watchdog after a numbered bar": (
        "[1761]   1%|▏         | 22/1752 [01:02<1:21:36,  2.83s/it]\n[1762]   1%|▏         | 23/1752 [01:05<1:23:14,  2.89s/it]\n[1763]   1%|▏         | 24/1752 [01:08<1:22:56,  2.88s/it][rank5]:[E602 11:17:52.185053341 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1085, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600045 milliseconds before timing out.",
        "HUNG",
        "a collective operation timed out",
        "[1763] 1%|▏ | 24/1752 [01:08<1:22:56, 2.",
    ),
    "nvrx heartbeat": (
        "[2025-06-04 10:20:33,005] [ERROR] [RankMonitorServer@node7] Did not get subsequent heartbeat. Waited 182.73 seconds.\n[2025-06-04 10:20:33,105] [WARNING] [ft_launcher] Rank terminated by RankMonitorServer: rank=12",
        "HUNG",
        "waiting for another process timed out",
        "[2025-06-04 10:20:33,005] [ERROR] [RankM",
    ),
    "deepep dispatch": (
        'Global rank: 6, num_recv_tokens: -1, num_rdma_recv_tokens: -1\nmoe_recv_expert_counter[0]: -1\n[rank428]: Traceback (most recent call last):\n[rank428]:   File "/opt/train.py", line 581, in internode_dispatch\n[rank428]:     recv_src_meta, send_rdma_head, send_nvl_head, event = self.runtime.internode_dispatch(\n[rank428]: RuntimeError: DeepEP error: timeout (dispatch CPU)',
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: DeepEP error: timeout (dis",
    ),
    "deepep barrier": (
        "DeepEP timeout check failed: rank = 6, thread = 0, value = 0)\nDeepEP timeout check failed: rank = 6, thread = 1, value = 0)\nDeepEP timeout check failed: rank = 2, thread = 5, value = 1024)",
        "HUNG",
        "a collective operation timed out",
        "DeepEP timeout check failed: rank = 6, t",
    ),
    "heartbeat monitor": (
        "[rank3]:[E1104 18:02:33.1 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank 3] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog\n[rank3]:[F1104 18:02:33.2 ProcessGroupNCCL.cpp:1557] [PG ID 0 PG GUID 0(default_pg) Rank 3] [PG ID 0 PG GUID 0(default_pg) Rank 3] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
        "HUNG",
        "a collective operation timed out",
        "[rank3]:[E1104 18:02:33.1 ProcessGroupNC",
    ),
    "aborted communicator": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: NCCL communicator was aborted on rank 3. Original reason for failure was: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1804550 milliseconds before timing out.',
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: NCCL communicator was abor",
    ),
    "thread: watchdog of an actor": (
        '(ActorModelRayActor pid=6146) [rank4]:[F1230 01:43:57.148 ProcessGroupNCCL.cpp:1306] [PG 0 (default_pg) Rank 4] ProcessGroupNCCL\'s watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\nTraceback (most recent call last):\n  File "/opt/cli/train_ppo_ray.py", line 171, in train\n    ray.get(refs)\nray.exceptions.RayTaskError(ActorDiedError): ray::ActorModelRayActor.fit() (pid=6146, ip=192.0.2.1, actor_id=9c72)\n  File "/opt/trainer/ray/ppo_actor.py", line 300, in fit\n    trainer.fit()\nray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.',
        "HUNG",
        "a collective operation timed out",
        "(ActorModelRayActor pid=6146) [rank4]:[F",
    ),
    "failed operations alone": (
        "[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        "HUNG",
        "a collective operation timed out",
        "[E ProcessGroupNCCL.cpp:455] Some NCCL",
    ),
    "notify register": (
        "npuSynchronizeDevice:/build/core/npu/NPUStream.cpp:370 NPU error, error code is 107020.\nEI0002: The wait execution of the Notify register times out. Reason: The Notify register has not received the Notify record from remote rank [3].base information: [streamID:[1], taskID[39], taskType[Notify Wait], tag[AllReduce_1]].",
        "HUNG",
        "a collective operation timed out",
        "EI0002: The wait execution of the Notify",
    ),
    "kernel that waits in vain": (
        "DeepEP dispatch NVL receiver timeout, channel: 2, RDMA: 0, nvl: 1, src NVL: 6, head: 288, tail: 288\nterminate called after throwing an instance of 'EPException'\n  what():  Failed: CUDA error /src/DeepEP/csrc/deep_ep.cpp:83 'unspecified launch failure'",
        "HUNG",
        "a collective operation timed out",
        "DeepEP dispatch NVL receiver timeout",
    ),
    "stream of an NPU": (
        "RuntimeError: npuSynchronizeDevice:core/npu/NPUStream.cpp:390 NPU function error: aclrtSynchronizeDevice, error code is 507046\nEE1002: 2024-10-03-09:10:22.418.004 Stream synchronize timeout. rtDeviceSynchronize execute failed, reason=[stream sync timeout]",
        "HUNG",
        "a collective operation timed out",
        "EE1002: 2024-10-03",
    ),
    "failed operations that abort": (
        "[Rank 11] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n[Rank 11] To avoid data inconsistency, we are taking the entire process down.\ntorch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -6) local_rank: 3 (pid: 80413) of binary: python",
        "HUNG",
        "a collective operation timed out",
        "[Rank 11] Some NCCL operations have",
    ),
    "failed operations and an abort": (
        "[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\nterminate called after throwing an instance of 'std::runtime_error'\n  what():  NCCL communicator was aborted on rank 3.",
        "HUNG",
        "a collective operation timed out",
        "[E ProcessGroupNCCL.cpp:455] Some NCCL",
    ),
    "a monitored barrier": (
        'Traceback (most recent call last):\n  File "train.py", line 88, in <module>\n    dist.monitored_barrier()\nRuntimeError: [Rank 0]: Ranks 3 failed to pass monitoredBarrier in 1800000 ms',
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: [Rank 0]: Ranks 3 failed to pass",
    ),
    "message: monitored other": (
        "RuntimeError: Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 2. Please check rank 2 logs for faulty rank.\n Original exception: \n[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
        "HUNG",
        "a collective operation timed out",
        "[../third_party/gloo/gloo/transport/tcp/",
    ),
    "message: torchft": (
        'TimeoutError: status: Cancelled, message: "Timeout expired", details: [], metadata: MetadataMap { headers: {} }',
        "HUNG",
        "waiting for another process timed out",
        "TimeoutError: status: Cancelled, message",
    ),
    "message: flight recorder timeout": (
        "[rank7]:[E901 21:19:08.277 ProcessGroupNCCL.cpp:1685] [PG ID 0 PG GUID 0 Rank 7] Observed flight recorder dump signal from another rank via TCPStore.\n[rank7]:[E901 21:19:08.278 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0 Rank 7] Received a dump signal due to a collective timeout from  rank 3 and we will try our best to dump the debug info. Last enqueued NCCL work: 12, last completed NCCL work: 11.",
        "HUNG",
        "a collective operation timed out",
        "[rank7]:[E901 21:19:08.278 ProcessGroupN",
    ),
    "message: monitored barrier": (
        "RuntimeError: [Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 1800000 ms",
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: [Rank 0]: Ranks 3, 5 faile",
    ),
    "message: nccl barrier timeout store": (
        "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
        "HUNG",
        "waiting for another process timed out",
        "torch.distributed.DistStoreError: wait t",
    ),
    "source: store socket timeout": (
        "RuntimeError: [2] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout",
        "HUNG",
        "waiting for another process timed out",
        "RuntimeError: [2] is setting up NCCL com",
    ),
    "source: gloo pair closure": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Application timeout caused pair closure",
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: [../third_party/gloo/gloo/",
    ),
}
