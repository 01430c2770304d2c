"""Networks: NCCL, InfiniBand, connections."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "nccl, system": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\n[rank0]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.',
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError",
    ),
    "nccl, remote": (
        "RuntimeError: NCCL communicator was aborted on rank 5. Original reason for failure was: NCCL error: remote process exited or there was a network error, ncclRemoteError: A call failed possibly due to a network error",
        "CRASHED",
        "NCCL or gloo failed",
        "RuntimeError",
    ),
    "ib completion": (
        "node01:3468:3905 [4] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
        "CRASHED",
        "InfiniBand failed",
        "node01",
    ),
    "ib queue pair": (
        "node01:99:120 [0] misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error No route to host",
        "CRASHED",
        "InfiniBand failed",
        "node01",
    ),
    "nccl, socket": (
        "node01:99:120 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.2<41235> failed : Software caused connection abort",
        "CRASHED",
        "a connection between ranks failed",
        "node01",
    ),
    "nccl, cuda": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.25.1\n[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank0]: Last error:\n[rank0]: Cuda failure 217 'peer access is not supported between these two devices'",
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError",
    ),
    "nccl, one gpu twice": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank1]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:268, invalid usage (run with NCCL_WARN=INFO for details), NCCL version 2.20.5\n[rank1]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n[rank1]: Last error:\n[rank1]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000',
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError",
    ),
    "ucx": (
        "[node01:24108:0:24108] ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n[node01:24108:0:24108] ib_mlx5_log.c:139  DCI QP 0xa9f wqe[0]: SEND s-e [rqpn 0xa66 rlid 703] [inl len 18]\n[node01:24108] *** Process received signal ***\n[node01:24108] Signal: Aborted (6)",
        "CRASHED",
        "InfiniBand failed",
        "[node01:24108:0:24108] ib_mlx5_log.c:139",
    ),
    "nccl, no path to the network": (
        'node01:11:22 [0] graph/topo.h:230 NCCL WARN Could not find NET with id 0\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3376, internal error - please report this issue to the NCCL developers, NCCL version 2.25.1',
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError",
    ),
    "nccl, memory of the network card": (
        'ip-10-0-1-2:25:584 [4] nccl_ofi_net.c:1234 NCCL WARN NET/OFI Unable to register memory (type = 2) for device 4. RC: -12, Error: Cannot allocate memory\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank4]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, unhandled system error, NCCL version 2.10.3',
        "CRASHED",
        "NCCL or gloo failed",
        "",
    ),
    "nccl, no peer access": (
        'z-pc:909608:910337 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer access is not supported between these two devices\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: NCCL error in: ../torch/lib/c10d/ProcessGroupNCCL.cpp:784, unhandled cuda error, NCCL version 2.7.8',
        "CRASHED",
        "NCCL or gloo failed",
        "RuntimeError: NCCL error",
    ),
    "nccl, bootstrap loses its peer": (
        "node0:13571:13571 [0] misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote peer 10.10.1.3<36138>\nnode0:13571:13571 [0] NCCL INFO misc/socket.cc:80 -> 6",
        "CRASHED",
        "a connection between ranks failed",
        "node0:13571",
    ),
    "nccl, no route, older": (
        "ps-8:795:822 [0] include/socket.h:409 NCCL WARN Net : Connect to 192.168.1.9<54263> failed : No route to host",
        "CRASHED",
        "a connection between ranks failed",
        "ps-8:795:822",
    ),
    "nccl 2.2": (
        "gpu-144:18553:18611 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out\ngpu-144:18553:18611 [0] INFO transport/net_socket.cu:118 -> 2",
        "CRASHED",
        "a connection between ranks failed",
        "gpu-144:18553",
    ),
    "gloo, interface": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: eth0',
        "CRASHED",
        "NCCL or gloo failed",
        "RuntimeError: [enforce",
    ),
    "modify qp deep_ep": (
        "Failed to modify QP to RTR: Connection timed out\nerrno: 110\nFailed to modify QP to RTR: Connection timed out",
        "CRASHED",
        "InfiniBand failed",
        "Failed to modify QP to RTR: Connection t",
    ),
    "nvshmem": (
        "/opt/nvshmem/src/host/init/init.cu:1023: non-zero status: 7 nvshmem setup connections failed",
        "CRASHED",
        "a connection between ranks failed",
        "/opt/nvshmem/src/host/init/init.cu:1023:",
    ),
    "interleaved dup": (
        "torch.distributedtorch.distributed.DistBackendError.: DistBackendErrorNCCL error in: /opt/pytorch/ProcessGroupNCCL.cpp:1287, invalid usage, NCCL version 2.17.1\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributedtorch.distributed.DistB",
    ),
    "mpi pod prefix": (
        'rdma-gpu-train-worker-0:   File "/usr/lib/python3.10/contextlib.py", line 135, in __enter__\nrdma-gpu-train-worker-0:     return next(self.gen)\nrdma-gpu-train-worker-0: torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/ProcessGroupNCCL.cpp:1197, internal error - please report this issue to the NCCL developers, NCCL version 2.18.3',
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError: NCCL",
    ),
    "ray frames": (
        '(MegatronPolicyWorker[rank=8] pid=3294808, ip=10.109.19.209)   File "/lustre/megatron/core/transformer/moe/moe_layer.py", line 701 in forward\n(MegatronPolicyWorker[rank=8] pid=3294808, ip=10.109.19.209)   File "/opt/torch/nn/modules/module.py", line 1790 in _call_impl\n(MegatronPolicyWorker[rank=8] pid=3294808, ip=10.109.19.209) torch.distributed.DistBackendError: NCCL error in: /pytorch/NCCLUtils.cpp:93, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.28.9',
        "CRASHED",
        "NCCL or gloo failed",
        "(MegatronPolicyWorker[rank=8] pid=329480",
    ),
    "vllm nccl": (
        "INFO 05-02 23:36:34 [utils.py:1055] Found nccl from library libnccl.so.2\nINFO 05-02 23:36:34 [pynccl.py:69] vLLM is using nccl==2.21.5\nNCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "CRASHED",
        "NCCL or gloo failed",
        "NCCL error: unhandled system error (run ",
    ),
    "ray mlx5": (
        "Train epoch [1/1]:  99%|█████████▉| 127/128 [23:32<00:06,  6.63s/it, pg=-0.0683, rm=-0.5, ret=-0.5, glen=7.28e+3]\n(LLMRayActor pid=90621, ip=172.19.24.110) update weight: model.embed_tokens.weight, dtype: torch.bfloat16, shape: torch.Size([152064, 5120])\n(LLMRayActor pid=90738, ip=172.19.24.110) mlx5: host_unknown: got completion with error:\n(LLMRayActor pid=90738, ip=172.19.24.110) 00000000 00000000 00000000 00000000",
        "CRASHED",
        "InfiniBand failed",
        "(LLMRayActor pid=90738, ip=172.19.24.110",
    ),
    "ofi av": (
        "[1,23]<stdout>:\n[1,23]<stdout>:ip-172-32-45-165:72593:73427 [7] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: Invalid argument\n[1,23]<stdout>:ip-172-32-45-165:72593:73427 [7] NCCL INFO include/net.h:24 -> 2",
        "CRASHED",
        "NCCL or gloo failed",
        "[1,23]<stdout>:ip-172-32-45-165:72593:73",
    ),
    "socketstartconnect": (
        '(WorkerDict pid=312563, ip=172.19.230.131) Traceback (most recent call last):\n(WorkerDict pid=312563, ip=172.19.230.131)   File "/opt/train.py", line 9, in <module>\n(WorkerDict pid=312563, ip=172.19.230.131)     main()\n(WorkerDict pid=312563, ip=172.19.230.131) torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5\n(WorkerDict pid=312563, ip=172.19.230.131) ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n(WorkerDict pid=312563, ip=172.19.230.131) Last error:\n(WorkerDict pid=312563, ip=172.19.230.131) socketStartConnect: Connect to 169.254.0.1<40815> failed : Software caused connection abort',
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError: NCCL",
    ),
    "ofi rc 21": (
        "algo-1:112:241 [0] nccl_net_ofi_request_test:780 NCCL WARN NET/OFI Request completed with error. RC: 21. Error: unknown error. Completed length: 0, Request: { buffer_index: 255, dev: 0, size: 0, state: CREATED, direction: SEND }",
        "CRASHED",
        "NCCL or gloo failed",
        "algo-1:112:241 [0] nccl_net_ofi_request_",
    ),
    "nccl error 1": (
        "[rank0]: RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n[rank1]: RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "CRASHED",
        "NCCL or gloo failed",
        "RuntimeError: NCCL Error 1: unhandled cu",
    ),
    "nccl unlink": (
        "node01:4242:4300 [2] misc/shmutils.cc:87 NCCL WARN unlink shared memory /dev/shm/nccl-d5rTd0 failed, error: No such file or directory\nnode01:4242:4300 [2] NCCL INFO transport/shm.cc:101 -> 2",
        "CRASHED",
        "NCCL or gloo failed",
        "node01:4242:4300 [2] misc/shmutils.cc:87",
    ),
    "ibv reg mr": (
        "node01:4242:4300 [2] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\nnode01:4242:4300 [2] NCCL INFO transport/net_ib.cc:640 -> 2",
        "CRASHED",
        "InfiniBand failed",
        "node01:4242:4300 [2] misc/ibvwrap.cc:252",
    ),
    "nccl remote exited": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, remote process exited or there was a network error, NCCL version 2.27.3',
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError: NCCL",
    ),
    "ofi completion": (
        "n1:41:99 [3] ofi_process_cq:1033 NCCL WARN NET/OFI Request 0x7f11 completed with error. RC: 21. Error: unknown error. Completed length: 0, Request: { dev: 0, size: 0, state: CREATED, direction: SEND }\nn1:41:99 [3] NCCL INFO include/net.h:35 -> 2",
        "CRASHED",
        "NCCL or gloo failed",
        "n1:41:99 [3] ofi_process_cq:1033 NCCL WA",
    ),
    "accept failed": (
        "n1:1001461:1009571 [1] NCCL INFO comm 0x5575bbed4480 rank 0 nranks 1 cudaDev 1 busId 2d000 - Abort COMPLETE\nn1:1001461:1009778 [1] NCCL INFO misc/socket.cc:47 -> 3\nn1:1001461:1009778 [1] NCCL INFO misc/socket.cc:621 -> 3\n\nn1:1001461:1003249 [1] proxy.cc:1458 NCCL WARN [Service thread] Accept failed Success\nn1:1001461:1009778 [1] NCCL INFO comm 0x5575a76127e0 rank 1 nranks 2 cudaDev 1 busId 2d000 - Abort COMPLETE",
        "CRASHED",
        "NCCL or gloo failed",
        "n1:1001461:1003249 [1] proxy.cc:1458 NCC",
    ),
    "failed operations are no hang": (
        "[E ProcessGroupNCCL.cpp:455] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n[E ProcessGroupNCCL.cpp:460] To avoid data inconsistency, we are taking the entire process down.\nterminate called after throwing an instance of 'std::runtime_error'\n  what():  NCCL error: remote process exited or there was a network error, NCCL version 2.14.3\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nNET/IB : Got completion from peer 10.0.0.7<40000> with error 12, opcode 0, len 0, vendor err 129",
        "CRASHED",
        "NCCL or gloo failed",
        "what(): NCCL error: remote process exited",
    ),
    "library of collectives": (
        'Traceback (most recent call last):\n  File "train.py", line 12, in <module>\n    dist.init_process_group("ccl")\nRuntimeError: oneCCL: exec.cpp:134 start_workers: EXCEPTION: failed to start worker # 0',
        "CRASHED",
        "NCCL or gloo failed",
        "RuntimeError: oneCCL: exec.cpp:134",
    ),
    "message: nccl socket last error": (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \nLast error:\nsocketStartConnect: Connect to 10.0.0.1<40735> failed : Software caused connection abort",
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError: NCCL",
    ),
    "message: roce": (
        "n1:42:99 [3] misc/ibvwrap.cc:222 NCCL WARN Call to ibv_modify_qp failed with error No data available errno 61",
        "CRASHED",
        "InfiniBand failed",
        "n1:42:99 [3] misc/ibvwrap.cc:222 NCCL WA",
    ),
    "message: ib reg mr": (
        "n1:42:99 [0] misc/ibvwrap.cc:172 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory errno 12",
        "CRASHED",
        "InfiniBand failed",
        "n1:42:99 [0] misc/ibvwrap.cc:172 NCCL WA",
    ),
    "message: ib async": (
        "n1:42:99 [0] transport/net_ib.cc:96 NCCL WARN NET/IB : mlx5_4:1 Got async event : port error",
        "CRASHED",
        "InfiniBand failed",
        "n1:42:99 [0] transport/net_ib.cc:96 NCCL",
    ),
    "message: nvls": (
        "n1:42:99 [0] transport/nvls.cc:339 NCCL WARN Cuda failure 1 'invalid argument'\ntorch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 1 'invalid argument'",
        "CRASHED",
        "NCCL or gloo failed",
        "n1:42:99 [0] transport/nvls.cc:339 NCCL ",
    ),
    "message: nccl lib mismatch": (
        "n1:42:99 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 512 bytes instead of 256",
        "CRASHED",
        "NCCL or gloo failed",
        "n1:42:99 [0] bootstrap.cc:77 NCCL WARN M",
    ),
    "source: gloo full mesh": (
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        "CRASHED",
        "NCCL or gloo failed",
        "RuntimeError: Gloo connectFullMesh faile",
    ),
    "source: no route": (
        "n2:42:99 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.1<40735> failed : No route to host",
        "CRASHED",
        "a connection between ranks failed",
        "n2:42:99 [0] misc/socket.cc:484 NCCL WAR",
    ),
    "source: host unreachable mid": (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.20.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer n2<41234>",
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError: NCCL",
    ),
    "what NCCL said last, behind pdsh's label": (
        "node2: Last error:\nnode2: Net : Call to recv from 10.0.0.2<56843> failed : Connection refused",
        "CRASHED",
        "a connection between ranks failed",
        "node2: Net : Call to recv from 10.0.0.2<56843> failed",
    ),
}
