"""Signatures of failures on GPUs and in the communication between ranks."""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.signature import DEATH, DEVICE, NCCL, OUT_OF_MEMORY, signature

_DEVICE: Final = r"(?:CUDA|HIP|XPU|NPU|MUSA|GPU)"

DEVICE_SIGNATURES: Final = (
    # A sentence that only mentions the words, such as advice, is no exception and allocates nothing.
    signature(
        rf"\b{_DEVICE} out of memory[.:] ?(?:Tried to allocate|\s*$)|Error: {_DEVICE} out of memory\b"
        r"|\btorch\.(?:\w+\.)?OutOfMemoryError(?::|\s*$)"
        r"|\b(?:CUDA|HIP)[\w ]*(?:[Ee]rror|failure)\b[^|]{0,40}out of memory|(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
        r"|\bTriton Error \[\w+\]: out of memory|\bRESOURCE_EXHAUSTED: Out of memory|\b(?:cuda"
        r"|hip)ErrorMemoryAllocation\b"
        r"|\bhipErrorOutOfMemory\b|^Error out of memory at line [0-9]+ in file",
        Outcome.OOM,
        "a GPU ran out of memory",
        "PyTorch",
        "use a smaller micro batch, more recompute or a higher ZeRO stage",
        weight=OUT_OF_MEMORY,
        words=(
            "ErrorMemoryAllocation",
            "OutOfMemoryError",
            "RESOURCE_EXHAUSTED: Out of memory",
            "_STATUS_ALLOC_FAILED",
            "hipErrorOutOfMemory",
            "out of memory",
        ),
    ),
    signature(
        r"NCCL WARN (?:(?!NCCL WARN )[^|]){0,400}?"
        r"(?:[Ff]ailed to (?:CUDA )?(?:[cm]alloc|allocate)|out of memory|cuda ?[Mm]alloc)"
        r"|\bCuda failure (?:[0-9]+ )?'out of memory'",
        Outcome.OOM,
        "NCCL found no GPU memory for its buffers",
        "NCCL",
        "leave NCCL 1 to 3 GiB beside PyTorch's memory",
        weight=OUT_OF_MEMORY,
        words=("NCCL WARN ", "Cuda failure "),
    ),
    signature(
        r"uncorrectable (?:ECC|NVLink) error|NVRM: Xid|\bXid \(PCI:|fallen off the bus|cudaErrorECC"
        r"|CUDA error: (?:unknown error|an? ?(?:NVLink|peer access)\b)|GPU is lost"
        r"|Unable to determine the device handle",
        Outcome.CRASHED,
        "a GPU failed",
        "the CUDA driver",
        "exclude the node and have its GPU checked",
        weight=DEVICE,
        words=(
            "CUDA error: ",
            "GPU is lost",
            "NVRM: Xid",
            "Unable to determine the device handle",
            "Xid (PCI:",
            "cudaErrorECC",
            "fallen off the bus",
            "uncorrectable ECC",
            "uncorrectable NVLink",
        ),
    ),
    signature(
        r"CUDA error: (?:device-side assert|an illegal (?:memory access|instruction)|misaligned address"
        r"|unspecified launch failure|the launch timed out|invalid (?:argument|configuration))"
        r"|HIP error: |aborting with error : HSA_STATUS_ERROR|Assertion `[^`']{1,200}' failed"
        r"|Assertion `[^`]{1,200}` failed|Memory access fault by GPU"
        r"|CUDA Exception: |\bcudaError(?:IllegalAddress|IllegalInstruction|MisalignedAddress|LaunchFailure|Assert)\b",
        Outcome.CRASHED,
        "a GPU kernel failed",
        "CUDA",
        "run it with CUDA_LAUNCH_BLOCKING=1; an assertion often means a token id beyond the vocabulary",
        weight=DEVICE,
        words=(
            "Assertion `",
            "CUDA Exception: ",
            "CUDA error: ",
            "HIP error: ",
            "HSA_STATUS_ERROR",
            "Memory access fault by GPU",
            "cudaError",
        ),
    ),
    signature(
        r"CUDA error: (?:invalid device ordinal|all CUDA-capable devices are busy|no kernel image|CUDA-capable device"
        r"|no CUDA-capable device|the provided PTX|system not yet initialized)|No CUDA GPUs are available"
        r"|NVIDIA driver on your system is too old|Found no NVIDIA driver|CUDA driver version is insufficient"
        r"|not compiled with CUDA enabled|Unexpected error from cudaGetDeviceCount\(\)|CUDA unknown error - this may"
        r"|MisconfigurationException: (?:You requested gpu: |No supported gpu backend)",
        Outcome.CRASHED,
        "no usable GPU",
        "PyTorch",
        "ask for as many GPUs as ranks, and install a torch that is built for them: `tuner doctor`",
        words=(
            "CUDA driver version is insufficient",
            "CUDA error: ",
            "CUDA unknown error",
            "Found no NVIDIA driver",
            "MisconfigurationException: ",
            "NVIDIA driver on your system",
            "No CUDA GPUs are available",
            "Unexpected error from cudaGetDeviceCount()",
            "not compiled with CUDA",
        ),
    ),
    signature(
        r"\b(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER|HIPBLAS|ROCBLAS)_STATUS_(?!SUCCESS)[A-Z_]+\b|cuDNN [Ee]rror: ",
        Outcome.CRASHED,
        "cuBLAS or cuDNN failed",
        "PyTorch",
        "often too little memory, or libraries of another CUDA version; try a smaller micro batch first",
        words=("_STATUS_", "cuDNN Error: ", "cuDNN error: "),
    ),
    signature(
        r"NET/IBP? ?: ?Got completion|NCCL WARN (?:(?!NCCL WARN )[^|]){0,200}?\bibv_\w+|NET/IBP? ?: ?[^"
        r"|]{0,80}?Got (?:fatal )?async|ibv_\w+ failed|\bib_mlx5_log\.c:[0-9]+ ",
        Outcome.CRASHED,
        "InfiniBand failed",
        "NCCL, UCX",
        "check the links and routes of the nodes, and NCCL_IB_HCA, NCCL_IB_GID_INDEX and NCCL_SOCKET_IFNAME",
        passing=True,
        words=("NCCL WARN ", "Got completion", "Got async", "Got fatal async", "ib_mlx5_log.c", "ibv_"),
    ),
    signature(
        r"NCCL WARN (?:(?!NCCL WARN )[^|]){0,400}?(?:[Ss]ocket|Connect(?:ion)? (?:to|closed|refused|reset|failed)"
        r"|[Nn]o (?:route|socket interface)"
        r"|Bootstrap)|include/socket\.h:[0-9]+ WARN ",
        Outcome.CRASHED,
        "a connection between ranks failed",
        "NCCL",
        "if no rank ended before, name the network with NCCL_SOCKET_IFNAME",
        weight=DEATH,
        passing=True,
        words=("NCCL WARN ", "include/socket.h:"),
    ),
    signature(
        r"[Ww]atchdog caught collective operation timeout|Timed out waiting [0-9]+ ?ms for \w+ operation"
        r"|failed to pass monitoredBarrier",
        Outcome.HUNG,
        "a collective operation timed out",
        "PyTorch",
        "look for the rank whose log ends first; --retry-hang-sync repeats the job with CUDA_LAUNCH_BLOCKING=1",
        words=("Timed out waiting ", "failed to pass monitoredBarrier", "atchdog caught collective operation timeout"),
    ),
    signature(
        r"\bnccl(?:System|Internal|Remote|UnhandledCuda|InvalidUsage|InvalidArgument)Error\b"
        r"|unhandled (?:system|cuda) error"
        r"|\bNCCL error\b|NCCL WARN Cuda failure|NCCL communicator was aborted"
        r"|misc/\w+\.cc:[0-9]+ NCCL WARN (?!Call to|Failed to open lib)|NCCL WARN NET/OFI ",
        Outcome.CRASHED,
        NCCL,
        "NCCL",
        "run it with NCCL_DEBUG=INFO and read the first NCCL WARN",
        passing=True,
        words=(
            " NCCL WARN ",
            "InternalError",
            "InvalidArgumentError",
            "InvalidUsageError",
            "NCCL WARN Cuda failure",
            "NCCL communicator was aborted",
            "NCCL error",
            "RemoteError",
            "SystemError",
            "UnhandledCudaError",
            "unhandled cuda error",
            "unhandled system error",
        ),
    ),
    signature(
        r"Some NCCL operations have failed or timed out|watchdog thread terminated|DistStoreError: Timed out"
        r"|Heartbeat monitor timed out|due to \w{1,40} watchdog hang|due to a collective timeout from rank",
        Outcome.HUNG,
        "a collective operation timed out",
        "PyTorch",
        "look for the rank whose log ends first",
        weight=DEATH,
        words=(
            "DistStoreError: Timed out",
            "Heartbeat monitor timed out",
            "Some NCCL operations have failed or timed out",
            " watchdog hang",
            "due to a collective timeout from rank",
            "watchdog thread terminated",
        ),
    ),
    signature(
        r"EADDRINUSE|[Aa]ddress already in use",
        Outcome.CRASHED,
        "a port is in use",
        "PyTorch",
        "use torchrun --standalone, or another --master-port for each job",
        words=("EADDRINUSE", "ddress already in use"),
    ),
    signature(
        r"Permission denied \((?:publickey|password|keyboard|gssapi)|: ssh exited with exit code [1-9]"
        r"|^(?:\S{1,100}: )?ssh: (?:Could not resolve|connect to host)|Host key verification failed",
        Outcome.CRASHED,
        "a node was not reached",
        "ssh, pdsh",
        "check the names of the hosts, and set up ssh between them without a password",
        words=(
            "Host key verification failed",
            "Permission denied (",
            "ssh exited with exit code ",
            "ssh: Could not resolve",
            "ssh: connect to host",
        ),
    ),
    signature(
        r"\bRendezvous(?:Timeout|Connection|Closed|State)?Error\b|The client socket has (?:failed|timed out)"
        r"|TCPStore[^|]{0,200}?timed out|DistNetworkError|failed to connect to [^|]{0,200}?TCPStore"
        r"|Timed out initializing process group",
        Outcome.CRASHED,
        "the ranks did not find each other",
        "torchrun",
        "check that every node starts as many ranks as torchrun expects, and the address and port of rank 0",
        words=("DistNetworkError", "Rendezvous", "TCPStore", "The client socket has ", "Timed out initializing"),
    ),
)
