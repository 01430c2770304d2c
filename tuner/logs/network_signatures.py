"""Signatures of failures in the communication between ranks: NCCL, InfiniBand, watchdogs, stores, ports, ssh."""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.signature import BARE, DEATH, DEVICE, LOST, NCCL, PEER, Signature

NETWORK_SIGNATURES: Final = (
    Signature(
        r"NCCL WARN NET/IBP? ?: ?Got completion|NCCL WARN (?:(?!NCCL WARN )[^|]){0,200}?\bibv_\w+|NET/IBP? ?: ?[^"
        r"|]{0,80}?Got (?:fatal )?async|ibv_\w+ failed|\bib_mlx5_log\.c:[0-9]+ |[Ff]ailed to modify QP to \w+"
        r"|\bmlx[45]: \S{1,100}: got completion with error",
        Outcome.CRASHED,
        "InfiniBand failed",
        "NCCL, UCX",
        "check the links and routes of the nodes, and NCCL_IB_HCA, NCCL_IB_GID_INDEX and NCCL_SOCKET_IFNAME",
        passing=True,
        words=(
            "NCCL WARN ",
            "Got completion",
            "Got async",
            "Got fatal async",
            "ailed to modify QP",
            "got completion with error",
            "ib_mlx5_log.c",
            "ibv_",
        ),
    ),
    Signature(
        r"NCCL WARN (?:(?!NCCL WARN )[^|]){0,400}?(?:[Ss]ocket|Connect(?:ion)? (?:to|closed|refused|reset|failed)"
        r"|[Nn]o (?:route|socket interface)"
        r"|Bootstrap)|include/socket\.h:[0-9]+ WARN |nvshmem/src/[^|]{1,200}: (?:non-zero status|NULL value"
        r"|aborting)|\bNet ?: Call to \w{1,20} (?:from|to) \S{1,100} failed ?: ",
        Outcome.CRASHED,
        "a connection between ranks failed",
        "NCCL",
        "if no rank ended before, select the network with NCCL_SOCKET_IFNAME",
        weight=DEATH,
        passing=True,
        words=("NCCL WARN ", "include/socket.h:", "nvshmem/src/", ": Call to "),
    ),
    Signature(
        r"[Ww]atchdog caught collective operati(?:on timeout|\w{0,2}\s*$)|reason=\[stream sync timeout\]"
        r"|Timed out waiting [0-9]+ ?ms for \w+ operation|failed to pass monitoredBarrier"
        r"|\bGetting socket times out\. Reason: Remote Rank did not send",
        Outcome.HUNG,
        "a collective operation timed out",
        "PyTorch",
        "look for the rank whose log ends first; --retry-hang-sync repeats the job with CUDA_LAUNCH_BLOCKING=1",
        words=(
            "[stream sync timeout]",
            "Timed out waiting ",
            "failed to pass monitoredBarrier",
            "Getting socket times out. ",
            "atchdog caught collective operati",
        ),
    ),
    # The original exception is printed below.
    Signature(
        r"reached monitoredBarrier, but received error",
        Outcome.HUNG,
        "a collective operation timed out",
        "PyTorch",
        weight=PEER,
        words=("reached monitoredBarrier, but",),
    ),
    # DeepEP's kernels end themselves with a GPU error.
    Signature(
        r"\bDeepEP error: (?:CPU recv |dispatch |combine )?time ?out"
        r"|\bDeepEP (?:(?:dispatch|combine)[^|]{0,80} timeout|timeout check failed: )",
        Outcome.HUNG,
        "a collective operation timed out",
        "DeepEP",
        "look for the rank whose log ends first",
        weight=DEVICE,
        words=("DeepEP ",),
    ),
    Signature(
        r"\bno (?:output|progress|heartbeat) for [0-9.]{1,12} ?s(?:ec|econds)?\b[^|]{0,80}?"
        r"(?:SIGTERM|SIGKILL|[Kk]ill|[Tt]erminat)"
        r"|\bDid not get (?:initial|subsequent) heartbeat\. Waited "
        r"|DistStoreError: wait timeout|store->get\('[^']{0,80}'\) got error: wait timeout",
        Outcome.HUNG,
        "waiting for another process timed out",
        "PyTorch",
        "look for the rank whose log ends first",
        words=("no heartbeat for ", "no output for ", "no progress for ", "wait timeout", "Did not get "),
    ),
    Signature(
        r"by subset of ranks and are waiting for remainder of ranks for more than [0-9]+ seconds"
        r"|[Hh]ang detected\b",
        Outcome.HUNG,
        "waiting for another process timed out",
        "Horovod, nvidia-resiliency-ext",
        weight=DEATH,
        passing=True,
        words=("waiting for remainder of ranks", "ang detected"),
    ),
    # The rank that they name may print its own failure. NCCL's exceptions quote its last warning.
    Signature(
        r"remote process (?:has )?exited|\bncclRemoteError\b|NET/IBP? ?: ?Got completion",
        Outcome.CRASHED,
        NCCL,
        "NCCL",
        weight=PEER,
        passing=True,
        words=("remote process ", "ncclRemoteError", "Got completion"),
    ),
    Signature(
        r"\bnccl(?:System|Internal|Remote|UnhandledCuda|InvalidUsage|InvalidArgument)Error\b"
        r"|unhandled (?:system|cuda) error"
        r"|NCCL error(?: in)?: |\bNCCL error\b|NCCL WARN Cuda failure"
        r"|\bDuplicate GPU detected : rank|NCCL WARN (?:Mismatched |Message truncated|Error: failed to extend )"
        r"|misc/\w+\.cc:[0-9]+ NCCL WARN (?!Call to|Failed to open lib)|NCCL WARN NET/OFI ",
        Outcome.CRASHED,
        NCCL,
        "NCCL",
        "run it with NCCL_DEBUG=INFO and read the first NCCL WARN",
        weight=LOST,
        passing=True,
        words=(
            " NCCL WARN ",
            "Duplicate GPU detected",
            "InternalError",
            "InvalidArgumentError",
            "InvalidUsageError",
            "NCCL WARN Cuda failure",
            "NCCL error",
            "RemoteError",
            "SystemError",
            "UnhandledCudaError",
            "unhandled cuda error",
            "unhandled system error",
        ),
    ),
    Signature(
        r"\.(?:cc|cpp|h):[0-9]+ NCCL WARN (?!Call to|Failed to open|[^|]{0,200}(?:[Ff]alling back|[Ii]gnor"
        r"|[Rr]etry|, using [^|]{1,60} instead))",
        Outcome.CRASHED,
        NCCL,
        "NCCL",
        weight=BARE,
        passing=True,
        words=(" NCCL WARN ",),
    ),
    # The rank was stopped by the watchdog, or by another rank's error.
    Signature(
        r"NCCL communicator was aborted",
        Outcome.CRASHED,
        NCCL,
        "PyTorch",
        weight=PEER,
        words=("NCCL communicator was aborted",),
    ),
    Signature(
        r"Application timeout caused pair closure"
        r"|watchdog thread terminated|DistStoreError: Timed out(?![^|]{0,80} clients)"
        r"|The wait execution of the Notify register times out"
        r"|Timeout at NCCL work: [0-9]|Heartbeat monitor timed out"
        r"|due to \w{1,40} watchdog hang|due to a collective timeout from {1,4}rank"
        r"|watchdog got stuck for [0-9]+ seconds",
        Outcome.HUNG,
        "a collective operation timed out",
        "PyTorch",
        "look for the rank whose log ends first",
        weight=DEATH,
        words=(
            "Application timeout caused pair closure",
            "DistStoreError: Timed out",
            "Heartbeat monitor timed out",
            "Notify register times out",
            "Timeout at NCCL work: ",
            " watchdog hang",
            "due to a collective timeout from ",
            "watchdog got stuck for ",
            "watchdog thread terminated",
        ),
    ),
    # It also refers to failed operations, whose cause is printed elsewhere.
    Signature(
        r"Some NCCL operations have failed or timed out",
        Outcome.HUNG,
        "a collective operation timed out",
        "PyTorch",
        weight=BARE,
        words=("Some NCCL operations have failed or timed out",),
    ),
    Signature(
        r"EADDRINUSE|[Aa]ddress already in use|on port `[0-9]{1,5}`, but another process is utilizing it",
        Outcome.CRASHED,
        "a port is in use",
        "PyTorch",
        "use torchrun --standalone, or another --master-port for each job",
        words=("EADDRINUSE", "ddress already in use", "another process is utilizing it"),
    ),
    Signature(
        r"Permission denied \((?:publickey|password|keyboard|gssapi)|: ssh exited with exit code [1-9]"
        r"|^(?:\S{1,100}: )?ssh: (?:Could not resolve|connect to host)|Host key verification failed"
        r"|fwd_tree_thread: can't find address for host"
        r"|was not reachable via ssh|^pdsh@\S{1,100}: \S{1,100}: connect: |kex_exchange_identification: "
        r"|\bORTE was unable to reliably start|\bAn (?:ORTE|PRTE) daemon has unexpectedly failed",
        Outcome.CRASHED,
        "a node could not be reached",
        "ssh, pdsh, DeepSpeed, mpirun",
        "check the host names, and set up passwordless ssh between the hosts",
        words=(
            "Host key verification failed",
            "Permission denied (",
            ": connect: ",
            "daemon has unexpectedly failed",
            "kex_exchange_identification: ",
            "unable to reliably start",
            *("was not reachable via ssh", "fwd_tree_thread: "),
            "ssh exited with exit code ",
            "ssh: Could not resolve",
            "ssh: connect to host",
        ),
    ),
    Signature(
        r"\[W[^\]]{1,80}\] \[c10d\] The client socket has failed",
        Outcome.CRASHED,
        "the ranks could not find each other",
        "torchrun",
        weight=PEER,
        words=("The client socket has failed",),
    ),
    Signature(
        r"(?<!error of type )\bRendezvous(?:Timeout|Connection|Closed|State)?Error\b"
        r"|The client socket has (?:failed|timed out)"
        r"|TCPStore[^|]{0,200}?timed out|DistNetworkError(?!: [Ff]ailed to recv)"
        r"|failed to connect to [^|]{0,200}?TCPStore|Stop_waiting response is expected"
        r"|Timed out initializing process group|connect\(\) timed out\. Original timeout was"
        r"|DistStoreError: Timed out [^|]{0,40} waiting for clients"
        r"|Barrier_id: P[Jj]RT_Client_Connect|Barrier timed out\. Id: \[Init\]"
        r"|coordination service as cluster registration failed"
        r"|failed to listen on any local network address|\bhost not found: (?:Name|Temporary|No address)",
        Outcome.CRASHED,
        "the ranks could not find each other",
        "torchrun",
        "check that every node starts as many ranks as torchrun expects, and the address and port of rank 0",
        words=(
            *("DistNetworkError", "Rendezvous", "TCPStore", "The client socket has ", "Timed out initializing"),
            *("any local network address", "connect() timed out", "host not found: ", "Stop_waiting response"),
            *(
                "DistStoreError: Timed out",
                "RT_Client_Connect",
                "Barrier timed out. Id: [Init]",
                "cluster registration failed",
            ),
        ),
    ),
)
