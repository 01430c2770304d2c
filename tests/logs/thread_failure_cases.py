"""Failures as users pasted them into public threads from 2019 to 2026, a few lines each, written by hand in the wording
of the programs that print them, and lines of such logs that only sound like failures."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.last_failure_cases import LAST, LAST_HARMLESS
from tests.logs.later_thread_failure_cases import LATER, LATER_HARMLESS
from tests.logs.launcher_failure_cases import TRACE
from tests.logs.round_failure_cases import ROUND_HARMLESS, ROUNDS
from tests.logs.unseen_failure_cases import UNSEEN

EARLIER: Final = {
    "mpi abort, open mpi": (
        "--------------------------------------------------------------------------\nMPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n\nNOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.",
        "CRASHED",
        "a rank aborted",
        "MPI_ABORT was invoked",
    ),
    "mpi abort, mpich": (
        "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3",
        "CRASHED",
        "a rank aborted",
        "application called MPI_Abort",
    ),
    "prterun, aborted": (
        "--------------------------------------------------------------------------\nprterun noticed that process rank 7 with PID 0 on node gpu0304 exited on signal 6 (Aborted).\n--------------------------------------------------------------------------",
        "CRASHED",
        "a rank aborted",
        "prterun noticed",
    ),
    "mpirun, exit code": (
        "Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job has been aborted.\n"
        "--------------------------------------------------------------------------\nmpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated. The first process to do so was:\n\n  Process name: [[32288,1],0]\n  Exit code:    1",
        "CRASHED",
        "a rank failed",
        "",
    ),
    "srun kills the other tasks": (
        "srun: error: node0824: task 5: Exited with exit code 1\nsrun: launch/slurm: _step_signal: Terminating StepId=43575862.0\n"
        "slurmstepd: error: *** STEP 43575862.0 ON node0824 CANCELLED AT 2021-07-14T08:00:36 ***\nsrun: error: node0824: tasks 3,7: Killed\nsrun: error: node0833: task 8: Killed\nsrun: Force Terminated StepId=43575862.0",
        "CRASHED",
        "a rank failed",
        "srun: error: node0824: task 5: Exited",
    ),
    "slurm finds no torchrun": (
        "slurmstepd: error: execve(): torchrun: No such file or directory\nsrun: error: g1301: task 0: Exited with exit code 2\nsrun: launch/slurm: _step_signal: Terminating StepId=3022331.0",
        "CRASHED",
        "a program or file is missing",
        "slurmstepd: error: execve()",
    ),
    "dash finds no program": (
        "train.sh: 1: srun: not found",
        "CRASHED",
        "a program or file is missing",
        "train.sh: 1",
    ),
    "abort of a shell's child": (
        "./pretrain.sh: line 184: 2324239 Aborted                 (core dumped) litgpt pretrain $model_name --resume",
        "CRASHED",
        "a rank aborted",
        "./pretrain.sh",
    ),
    "illegal instruction of the processor": (
        "./train.sh: line 3: 20121 Illegal instruction     (core dumped) python tools/train.py",
        "CRASHED",
        "a rank died of an illegal instruction",
        "./train.sh",
    ),
    "floating point exception": (
        "./train.sh: line 3:  1098 Floating point exception(core dumped) python train.py --batchsize=1",
        "CRASHED",
        "a rank died of an arithmetic error",
        "./train.sh",
    ),
    "invalid pointer": (
        "free(): invalid pointer\nAborted (core dumped)",
        "CRASHED",
        "a rank corrupted its memory",
        "free(): invalid pointer",
    ),
    "double free": (
        "*** Error in `python': double free or corruption (out): 0x0000000001db6160 ***\nAborted (core dumped)",
        "CRASHED",
        "a rank corrupted its memory",
        "*** Error in `python'",
    ),
    "undefined symbol of a lazy import": (
        TRACE
        + "[rank0]: RuntimeError: Failed to import trl.trainer.gkd_trainer because of the following error (look up to see its traceback):\n"
        "[rank0]: Failed to import transformers.modeling_utils because of the following error (look up to see its traceback):\n"
        "[rank0]: /usr/local/lib/python3.10/dist-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2E",
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Failed to import",
    ),
    "libstdc++ too old": (
        TRACE
        + "[rank0]: ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /home/u/.cache/torch_extensions/py38_cu117/async_io/async_io.so)",
        "CRASHED",
        "a dependency is missing",
        "ImportError",
    ),
    "extension does not build": (
        'Traceback (most recent call last):\n  File "/opt/torch/utils/cpp_extension.py", line 2100, in _run_ninja_build\n    subprocess.run(\n'
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\n\nThe above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    main()\nRuntimeError: Error building extension 'fused_adam'",
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: Error building extension",
    ),
    "cuda of another version": (
        TRACE
        + "[rank0]: deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA version 12.4 does not match the version torch was compiled with 12.1, unable to compile cuda/cpp extensions without a matching cuda version.",
        "CRASHED",
        "an exception ended a rank",
        "deepspeed.ops.op_builder",
    ),
    "too many open files": (
        TRACE + "[rank0]: OSError: [Errno 24] Too many open files",
        "CRASHED",
        "an exception ended a rank",
        "OSError: [Errno 24]",
    ),
    "stale file handle": (
        TRACE + "[rank0]: OSError: [Errno 116] Stale file handle: '/home/u/.cache/huggingface/datasets/text'",
        "CRASHED",
        "an exception ended a rank",
        "OSError: [Errno 116]",
    ),
    "compiler": (
        TRACE + "[rank0]: torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\n"
        "[rank0]: CompilationError: at 12:4",
        "CRASHED",
        "an exception ended a rank",
        "torch._dynamo.exc.BackendCompilerFailed",
    ),
    "ucx": (
        "[node01:24108:0:24108] ib_mlx5_log.c:139  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n"
        "[node01:24108:0:24108] ib_mlx5_log.c:139  DCI QP 0xa9f wqe[0]: SEND s-e [rqpn 0xa66 rlid 703] [inl len 18]\n"
        "[node01:24108] *** Process received signal ***\n[node01:24108] Signal: Aborted (6)",
        "CRASHED",
        "InfiniBand failed",
        "[node01:24108:0:24108] ib_mlx5_log.c:139",
    ),
    "nccl, no path to the network": (
        "node01:11:22 [0] graph/topo.h:230 NCCL WARN Could not find NET with id 0\n"
        + TRACE
        + "[rank0]: torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3376, internal error - please report this issue to the NCCL developers, NCCL version 2.25.1",
        "CRASHED",
        "NCCL or gloo failed",
        "torch.distributed.DistBackendError",
    ),
    "nccl, memory of the network card": (
        "ip-10-0-1-2:25:584 [4] nccl_ofi_net.c:1234 NCCL WARN NET/OFI Unable to register memory (type = 2) for device 4. RC: -12, Error: Cannot allocate memory\n"
        + TRACE
        + "[rank4]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219, unhandled system error, NCCL version 2.10.3",
        "CRASHED",
        "NCCL or gloo failed",
        "",
    ),
    "nccl, no peer access": (
        "z-pc:909608:910337 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer access is not supported between these two devices\n"
        + TRACE
        + "[rank0]: RuntimeError: NCCL error in: ../torch/lib/c10d/ProcessGroupNCCL.cpp:784, unhandled cuda error, NCCL version 2.7.8",
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
    "store, socket timeout": (
        'Traceback (most recent call last):\n  File "/opt/conda/lib/python3.7/site-packages/torch/distributed/elastic/utils/store.py", line 31, in get_all\n    data = store.get(f"{prefix}{idx}")\nRuntimeError: Socket Timeout',
        "HUNG",
        "something was waited for in vain",
        "RuntimeError: Socket Timeout",
    ),
    "store, some ranks never came": (
        TRACE
        + "[rank0]: RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=8, worker_count=4, timeout=0:30:00)",
        "CRASHED",
        "the ranks did not find each other",
        "RuntimeError: Timed out initializing",
    ),
    "rendezvous, no connection": (
        "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to 192.0.0.1:1234\n"
        'Traceback (most recent call last):\n  File "/usr/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
        "CRASHED",
        "the ranks did not find each other",
        "[E socket.cpp:860]",
    ),
    "gloo, barrier": (
        TRACE
        + "[rank0]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
        "HUNG",
        "a collective operation timed out",
        "RuntimeError: [/pytorch",
    ),
    "rocm, memory access": (
        "Memory access fault by GPU node-1 (Agent handle: 0x2657390) on address 0x7f5c42600000. Reason: Page not present or supervisor privilege.\nAborted (core dumped)",
        "CRASHED",
        "a GPU kernel failed",
        "Memory access fault",
    ),
    "rocm, queue": (
        ":0:rocdevice.cpp:3586: 74339723890 us: Callback: Queue 0x7f78cb400000 aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016\nAborted (core dumped)",
        "CRASHED",
        "a GPU kernel failed",
        ":0:rocdevice.cpp",
    ),
    "accelerate's older config": (
        "Traceback (most recent call last):\n  File \"/opt/bin/accelerate\", line 8, in <module>\n    sys.exit(main())\nTypeError: __init__() got an unexpected keyword argument 'gpu_ids'",
        "CRASHED",
        "an exception ended a rank",
        "TypeError",
    ),
    "megatron, too little data": (
        TRACE + "[rank0]: AssertionError: last epoch number of samples exceeded max value.",
        "CRASHED",
        "an exception ended a rank",
        "AssertionError: last epoch",
    ),
    "nanotron, yaml": (
        TRACE
        + '[rank0]: yaml.scanner.ScannerError: mapping values are not allowed here\n[rank0]:   in "examples/train_tiny_llama.sh", line 4, column 12',
        "CRASHED",
        "an exception ended a rank",
        "yaml.scanner.ScannerError",
    ),
    "data loader, shared memory": (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"
        + TRACE
        + "[rank0]: RuntimeError: DataLoader worker (pid 3867) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
        "CRASHED",
        "a bus error: often too little shared memory",
        "",
    ),
    "nan, lit-llama": (
        "iter 3196: loss nan, time: 134.94ms\niter 3197: loss nan, time: 134.20ms\niter 3198: loss nan, time: 134.61ms",
        "CRASHED",
        "the loss is not a number",
        "iter 3",
    ),
    "nan, composer": (
        TRACE + "[rank0]: RuntimeError: Train loss contains a NaN.",
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: Train loss",
    ),
    "nan, lightning": (
        TRACE + "[rank0]: ValueError: The loss returned in `training_step` is nan.",
        "CRASHED",
        "the loss is not a number",
        "ValueError: The loss",
    ),
    "nan, ending training": (
        "16/999 7.38G 0.03433 0.01034: 85%|████████▌ | 23/27 [00:15<00:02,  1.66it/s]WARNING: non-finite loss, ending training  tensor([nan, nan, nan, nan], device='cuda:0')",
        "CRASHED",
        "the loss is not a number",
        "16/999",
    ),
    "port, through deepspeed": (
        TRACE
        + "[rank0]: RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29501 (errno: 98 - Address already in use).",
        "CRASHED",
        "a port is in use",
        "RuntimeError: The server socket",
    ),
    "spawned rank aborted": (
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    mp.spawn(main)\ntorch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGABRT',
        "CRASHED",
        "a rank aborted",
        "torch.multiprocessing.spawn",
    ),
    "typer": (
        "Usage: nemo llm pretrain [OPTIONS]\nTry 'nemo llm pretrain --help' for help.\n╭─ Error ──────────────────────────────────╮\n│ No such option: --trainer-devices        │\n╰──────────────────────────────────────────╯",
        "CRASHED",
        "the trainer refused its arguments",
        "│ No such option",
    ),
    "click": (
        "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option: --micro-batch (Possible options: --batch)",
        "CRASHED",
        "the trainer refused its arguments",
        "Error: No such option",
    ),
    "lightning cli": (
        "usage: main.py [-h] [-c CONFIG] {fit,validate,test,predict} ...\nerror: Unrecognized arguments: --trainer.tensor_parallel=2",
        "CRASHED",
        "the trainer refused its arguments",
        "error: Unrecognized",
    ),
    "absl": (
        "FATAL Flags parsing error:\n  Unknown command line flag 'tensor_parallel'. Did you mean: tensorboard ?\nPass --helpshort or --helpfull to see help on flags.",
        "CRASHED",
        "the trainer refused its arguments",
        "Unknown command line flag",
    ),
    "oom, bitsandbytes": (
        "Error out of memory at line 380 in file /mmfs1/git/bitsandbytes/csrc/pythonInterface.c",
        "OOM",
        "a GPU ran out of memory",
        "Error out of memory",
    ),
    "oom, asynchronous allocator": (
        TRACE
        + "[rank0]: torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\n[rank0]: Currently allocated     : 37.90 GiB\n[rank0]: Requested               : 2.00 GiB",
        "OOM",
        "a GPU ran out of memory",
        "torch.OutOfMemoryError",
    ),
    "disk, safetensors": (
        TRACE
        + '[rank0]: safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })',
        "CRASHED",
        "the disk is full",
        "safetensors_rust",
    ),
    "wandb, no key": (
        TRACE
        + "[rank0]: wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "CRASHED",
        "access was denied",
        "wandb.errors",
    ),
    "autograd": (
        TRACE
        + '[rank0]: RuntimeError: !grad_accumulator_.expired() INTERNAL ASSERT FAILED at "../torch/csrc/autograd/saved_variable.cpp":226, please report a bug to PyTorch. No grad accumulator for a saved leaf',
        "CRASHED",
        "an exception ended a rank",
        "RuntimeError: !grad_accumulator_",
    ),
}
"""Of each failure its lines, its outcome, its meaning and how its evidence begins. Of them and `EARLIER_HARMLESS`, 33 of 63 were read right
at first sight."""

EARLIER_HARMLESS: Final = (
    "node01:97:221 [0] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory",
    "ip-172-31-0-137:14605:14673 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",
    "node01:11:22 [0] graph/search.cc:1135 NCCL WARN Could not find a path for pattern 1, falling back to simple order",
    "W1024 01:17:10.936000 140404233111360 torch/_dynamo/convert_frame.py:1009] torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
    "[W503 01:52:07.597517393 socket.cpp:204] [c10d] The hostname of the client socket cannot be retrieved. err=-3",
    "[W socket.cpp:436] [c10d] The server socket cannot be initialized on [::]:29500 (errno: 97 - Address family not supported by protocol).",
    "node01:85:587 [1] NCCL INFO [Service thread] Connection closed by localRank 0",
    "Error caught was: No module named 'triton'",
    "[2023-04-17 03:02:34,101] [INFO] [launch.py:428:sigkill_handler] Killing subprocess 656",
    "worker:101542:101934 [0] NCCL INFO Call to connect returned Connection timed out, retrying",
    "[WARNING]  async_io requires the dev libaio .so object and headers but these were not found.",
    "[2025-04-02 14:59:58,020] torch.multiprocessing.spawn: [WARNING] Terminating process 11979 via signal SIGTERM",
)
"""Lines of such logs that show no failure."""

THREAD_FAILURES: Final = {**EARLIER, **LATER, **UNSEEN, **LAST, **ROUNDS}
THREAD_HARMLESS: Final = (*EARLIER_HARMLESS, *LATER_HARMLESS, *LAST_HARMLESS, *ROUND_HARMLESS)
