"""Failures from public threads of all frameworks, in rounds, and lines that are none."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

from tests.logs.class_failures import CLASS_FAILURES
from tests.logs.configuration_failures import CONFIGURATION_FAILURES
from tests.logs.eighth_round_failures import EIGHTH_ROUND
from tests.logs.eleventh_round_failures import ELEVENTH_ROUND
from tests.logs.fifth_round_failures import FIFTH_ROUND
from tests.logs.first_round_failures import FIRST_ROUND
from tests.logs.fourth_round_failures import FOURTH_ROUND
from tests.logs.message_failures import MESSAGE_FAILURES
from tests.logs.ninth_round_failures import NINTH_ROUND
from tests.logs.scheduler_failures import SCHEDULER_FAILURES
from tests.logs.second_round_failures import SECOND_ROUND
from tests.logs.seventh_round_failures import SEVENTH_ROUND
from tests.logs.sixth_round_failures import SIXTH_ROUND
from tests.logs.tenth_round_failures import TENTH_ROUND
from tests.logs.third_round_failures import THIRD_ROUND

ROUNDS: Final = {
    **CLASS_FAILURES,
    **FIRST_ROUND,
    **SECOND_ROUND,
    **THIRD_ROUND,
    **FOURTH_ROUND,
    **FIFTH_ROUND,
    **SIXTH_ROUND,
    **SEVENTH_ROUND,
    **EIGHTH_ROUND,
    **NINTH_ROUND,
    **TENTH_ROUND,
    **ELEVENTH_ROUND,
    **MESSAGE_FAILURES,
    **SCHEDULER_FAILURES,
    **CONFIGURATION_FAILURES,
}

ROUND_HARMLESS: Final[tuple[str, ...]] = (
    "n1:4242:4300 [0] transport.cc:323 NCCL WARN Cannot initialize CollNet, using point-to-point network instead",
    "/opt/bin/prolog.sh: line 3: /etc/profile.d/site.sh: Permission denied\n iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |\n iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |\n iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
    "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling parallelism to avoid deadlocks...\nTo disable this warning, you can either:\n\t- Avoid using `tokenizers` before the fork if possible\n\t- Explicitly set the environment variable TOKENIZERS_PARALLELISM=(true | false)",
    "[rank0]:[W301 10:00:00.1 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources. For more info, please see https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())",
    "wandb: Network error (ConnectTimeout), entering retry loop.\n{'loss': 1.2, 'grad_norm': 0.4, 'learning_rate': 1e-05, 'epoch': 0.1}",
    "[2024-05-01 10:00:00,000] [WARNING] [cpu_adam.py:84:__init__] FP16 params for CPUAdam may not work on AMD CPUs\nInstalled CUDA version 12.2 does not match the version torch was compiled with 12.1 but since the APIs are compatible, accepting this combination",
    "'(MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded\"), '(Request ID: 42)')' thrown while requesting HEAD https://huggingface.co/x/resolve/main/config.json\nRetrying in 1s [Retry 1/5].",
    "W0301 10:00:00.000000 4242 torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded, please further tune the variable for optimal performance in your application as needed.",
    "n1:42:42 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.\nn1:42:42 [0] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.",
    "Failed to import Triton kernels. Please make sure your triton version is compatible. No module named 'triton.language.target_info'\nstep:  1  loss: 12.2  tps: 375",
    "[WARNING] async_io requires the dev libaio .so object and headers but these were not found.\n[WARNING] async_io: please install the libaio-devel package with yum\n[WARNING] using untested triton version (3.1.0), only 1.0.0 is known to be compatible",
    "[W socket.cpp:601] [c10d] The client socket has failed to connect to [n1]:29500 (errno: 111 - Connection refused).\n iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |\n iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |\n iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
    "W0101 00:00:00.000000 1 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1000] The node 'n1_1_0' has failed to send a keep-alive heartbeat to the rendezvous '1' due to an error of type RendezvousConnectionError.",
    "[rank3]:[W519 02:31:22.111 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=85, addr=[localhost]:57734, remote=[localhost]:29500): Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
    "Error: mkl-service + Intel(R) MKL: MKL_THREADING_LAYER=INTEL is incompatible with libgomp-a34b3233.so.1 library.",
    "slurmstepd: error: couldn't chdir to `/x': No such file or directory: going to /tmp instead",
    "run.sh: line 12: nvcc: command not found\n[W1124 10:00:00.123 socket.cpp:759] [c10d] The server socket has failed to listen on [::]:29500 (errno: 98 - Address already in use).\n iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |\n iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |\n iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
    "n1:1:10 [0] proxy.cc:1458 NCCL WARN [Service thread] Accept failed Success\n iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |\n iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |\n iteration        3/     100 | consumed samples:          192 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
    "INFO resuming from step 400 because the node was preempted\n iteration      401/    1000 | consumed samples:        25664 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
    "sbatch: error: Unable to open file spool.sh\n iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |\n iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
    "wandb: ERROR failed to sample GPU: pynvml.NVMLError_Unknown: Unknown Error\n iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |\n iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
    "(raylet) The actor died because its node has died. Restarting actor (attempt 1 of 3)\n iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |\n iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
    "(TrainController pid=4) the actor's node was preempted, restarting it (1/3)\n iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |\n iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
    "allocator.cc:99 WARN warning: std::bad_alloc caught, retry\n iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |\n iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
    "cuda_driver.cc:12 WARN retry CUDA error: out of memory\n iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |\n iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
    "memory allocation of 4096 bytes failed, retrying with a smaller buffer\n iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |\n iteration        2/     100 | consumed samples:          128 | elapsed time per iteration (ms): 4000.0 | lm loss: 1.1E+01 |",
)
