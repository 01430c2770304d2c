"""Signatures of failures on GPUs and in the communication between ranks."""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.signature import BARE, DEATH, DEVICE, LOST, NCCL, OUT_OF_MEMORY, signature

_DEVICE: Final = r"(?:CUDA|HIP|XPU|NPU|MUSA|GPU)"
_ERROR: Final = (
    r"(?:(?:CUDA|HIP)(?: driver| runtime)? [Ee]rror: |Triton Error \[\w+\]: |cuda runtime error \([0-9]+\) : )"
)
"""What comes before the text of an error of the runtime (`cudaGetErrorString`, `hipGetErrorString`)."""
_LIBRARIES: Final = ("cuBLAS", "cuBLASLt", "cuDNN", "cuFFT", "cuSOLVER", "cuSPARSE", "cuRAND")
_ERROR_WORDS: Final = (
    "CUDA error: ",
    "CUDA Error: ",
    "HIP error: ",
    " driver error: ",
    " runtime error",
    "Triton Error [",
)

DEVICE_SIGNATURES: Final = (
    # A sentence that only mentions the words, such as advice, is no exception and allocates nothing.
    signature(
        rf"\b{_DEVICE} out of memory[.:] ?(?:Tried to allocate|\s*$)|Error: {_DEVICE} out of memory\b"
        r"|\bMPS backend out of memory \(|\bCUDA_ERROR_OUT_OF_MEMORY\b|\bUR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\b"
        r"|\bZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\b"
        r"|\btorch\.(?:\w+\.)?OutOfMemoryError(?::|\s*$)"
        r"|\b(?:CUDA|HIP)[\w ]*(?:[Ee]rror|failure)\b[^|]{0,40}out of memory|(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
        r"|\bCUFFT_ALLOC_FAILED\b|\bcuBLAS Error: the resource allocation failed"
        r"|\bTriton Error \[\w+\]: out of memory|\b(?:cuda|hip)ErrorMemoryAllocation\b"
        r"|\b(?:RESOURCE_EXHAUSTED|Resource exhausted): (?:Out of memory|OOM |Attempting to (?:reserve|allocate)"
        r"|[^|]{0,120}?Ran out of memory)"
        r"|\bhipErrorOutOfMemory\b|^Error out of memory at line [0-9]+ in file"
        r"|\bOutOfMemoryError: Out of memory allocating|\bOut of memory error on GPU"
        r"|FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed",
        Outcome.OOM,
        "a GPU ran out of memory",
        "PyTorch",
        "use a smaller micro batch, more recompute or a higher ZeRO stage",
        weight=OUT_OF_MEMORY,
        words=(
            "ErrorMemoryAllocation",
            "_ERROR_OUT_OF_",
            "OutOfMemoryError",
            "RESOURCE_EXHAUSTED: ",
            "Resource exhausted: ",
            "Out of memory error on GPU",
            "MODULE:PT_DEVMEM",
            "_ALLOC_FAILED",
            "cuBLAS Error: ",
            "hipErrorOutOfMemory",
            "out of memory",
        ),
    ),
    # A warning, after which the allocator frees what it can.
    signature(
        r"\bexpandable_segments: memory mapping failed with OOM\b",
        Outcome.OOM,
        "a GPU ran out of memory",
        "PyTorch",
        weight=OUT_OF_MEMORY,
        passing=True,
        words=("expandable_segments: memory mapping failed",),
    ),
    signature(
        r"NCCL WARN (?:(?!NCCL WARN )[^|]){0,400}?"
        r"(?:[Ff]ailed to (?:CUDA )?(?:[cm]alloc|allocate)|out of memory|cuda ?[Mm]alloc)"
        r"|\bCuda failure (?:[0-9]+ )?'out of memory'|\bFailed to CUDA (?:host )?[cm]alloc(?: async)? [0-9]+ bytes",
        Outcome.OOM,
        "NCCL found no GPU memory for its buffers",
        "NCCL",
        "leave NCCL 1 to 3 GiB beside PyTorch's memory",
        weight=OUT_OF_MEMORY,
        words=("NCCL WARN ", "Cuda failure ", "Failed to CUDA "),
    ),
    signature(
        r"uncorrectable (?:ECC|NVLink) error|NVRM: (?:Xid|RmInitAdapter failed|rm_init_adapter failed)"
        r"|\bXid \(PCI:|fallen off the bus"
        r"|cudaErrorECC|hipErrorECC"
        rf"|{_ERROR}(?:unknown error|an? ?(?:NVLink|peer access)\b|hardware stack error|[Ii]nvalid access of peer GPU"
        r"|GPU is lost|device(?:\(s\))? (?:is|are) (?:not )?(?:lost|removed)|contained|tensor memory leak)|GPU is lost"
        r"|Unable to determine the device handle|\bCUDA_ERROR_(?:ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|CONTAINED"
        r"|HARDWARE_STACK_ERROR|UNKNOWN)\b|\bcudaError(?:HardwareStackError|NvlinkUncorrectable|Contained|Unknown)\b"
        r"|\bGPU reset required\b|HW Exception by GPU node",
        Outcome.CRASHED,
        "a GPU failed",
        "the CUDA driver",
        "exclude the node and have its GPU checked",
        weight=DEVICE,
        words=(
            *_ERROR_WORDS,
            "CUDA_ERROR_",
            "GPU is lost",
            "GPU reset required",
            "HW Exception by GPU node",
            "NVRM: ",
            "Unable to determine the device handle",
            "Xid (PCI:",
            "cudaError",
            "fallen off the bus",
            "hipErrorECC",
            "uncorrectable ECC",
            "uncorrectable NVLink",
        ),
    ),
    signature(
        rf"{_ERROR}(?:invalid device (?:ordinal|function)|all CUDA-capable devices are busy|no kernel image"
        r"|CUDA-capable device|no (?:CUDA|ROCm|HIP)-capable device|the provided PTX|system not yet initialized"
        r"|system has unsupported display driver|forward compatibility was attempted|device kernel image is invalid"
        r"|initialization error|(?:CUDA )?driver version is insufficient|OS call failed|Missing co for this ISA)"
        r"|No (?:CUDA|HIP) GPUs are available"
        r"|CUDA driver initialization failed|ProcessGroupNCCL is only supported with GPUs"
        r"|NVIDIA driver on your system is too old|Found no NVIDIA driver|CUDA driver version is insufficient"
        r"|not compiled with (?:CUDA|ROCm) enabled|Unexpected error from (?:cuda|hip)GetDeviceCount\(\)"
        r"|CUDA unknown error - this may|hipErrorNoBinaryForGpu: "
        r"|\b(?:cuda|hip)Error(?:NoDevice|InvalidDevice|NoKernelImageForDevice|InsufficientDriver|DevicesUnavailable"
        r"|SystemDriverMismatch|CompatNotSupportedOnDevice|UnsupportedPtxVersion|InvalidDeviceFunction"
        r"|InitializationError|SystemNotReady)\b"
        r"|\bCUDA_ERROR_(?:NO_DEVICE|INVALID_DEVICE|NO_BINARY_FOR_GPU|UNSUPPORTED_PTX_VERSION|SYSTEM_DRIVER_MISMATCH"
        r"|SYSTEM_NOT_READY|COMPAT_NOT_SUPPORTED_ON_DEVICE|DEVICE_UNAVAILABLE|NOT_INITIALIZED)\b"
        r"|MisconfigurationException: (?:You requested gpu: |No supported gpu backend)",
        Outcome.CRASHED,
        "no usable GPU",
        "PyTorch",
        "ask for as many GPUs as ranks, and install a torch that is built for them: `tuner doctor`",
        words=(
            *_ERROR_WORDS,
            "CUDA driver initialization failed",
            "CUDA driver version is insufficient",
            "ProcessGroupNCCL is only",
            "CUDA unknown error",
            "CUDA_ERROR_",
            "Found no NVIDIA driver",
            "GPUs are available",
            "GetDeviceCount()",
            "MisconfigurationException: ",
            "NVIDIA driver on your system",
            "cudaError",
            "hipError",
            "not compiled with ",
        ),
    ),
    signature(
        rf"{_ERROR}(?:device-side assert|an illegal (?:memory access|instruction)|misaligned address"
        r"|unspecified launch failure|the launch timed out|invalid (?:argument|configuration|program counter|pitch)"
        r"|operation not supported on global|too many resources requested|cluster )"
        r"|HIP error: |aborting with error : HSA_STATUS_ERROR"
        r"|(?:block: \[|\.cuh?:)[^|]{0,300}Assertion `[^`']{1,200}[`'] failed"
        r"|Memory access fault by GPU|CUDA Exception: "
        r"|\b(?:cuda|hip)Error(?:IllegalAddress|IllegalInstruction|MisalignedAddress|LaunchFailure|LaunchTimeO?ut|Assert"
        r"|InvalidPc|InvalidAddressSpace|LaunchOutOfResources)\b"
        r"|\bCUDA_ERROR_(?:ILLEGAL_ADDRESS|ILLEGAL_INSTRUCTION|MISALIGNED_ADDRESS|LAUNCH_FAILED|LAUNCH_TIMEOUT|ASSERT"
        r"|INVALID_PC|INVALID_ADDRESS_SPACE|LAUNCH_OUT_OF_RESOURCES)\b",
        Outcome.CRASHED,
        "a GPU kernel failed",
        "CUDA",
        "run it with CUDA_LAUNCH_BLOCKING=1; an assertion often means a token id beyond the vocabulary",
        weight=DEVICE,
        words=(
            *_ERROR_WORDS,
            "Assertion `",
            "CUDA Exception: ",
            "CUDA_ERROR_",
            "HSA_STATUS_ERROR",
            "Memory access fault by GPU",
            "cudaError",
            "hipError",
        ),
    ),
    signature(
        r"\b(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER|CURAND|HIPBLAS|ROCBLAS|MIOPEN)_STATUS_(?!SUCCESS)[A-Z_]+\b"
        r"|\bcu(?:BLAS(?:Lt)?|DNN|FFT|SOLVER|SPARSE|RAND) [Ee]rror: |\bmiopenStatus(?!Success)[A-Z]\w+",
        Outcome.CRASHED,
        "cuBLAS or cuDNN failed",
        "PyTorch",
        "often too little memory, or libraries of another CUDA version; try a smaller micro batch first",
        words=(
            *("_STATUS_", "miopenStatus"),
            *(f"{library} {error}: " for library in _LIBRARIES for error in ("error", "Error")),
        ),
    ),
    signature(
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
    signature(
        r"NCCL WARN (?:(?!NCCL WARN )[^|]){0,400}?(?:[Ss]ocket|Connect(?:ion)? (?:to|closed|refused|reset|failed)"
        r"|[Nn]o (?:route|socket interface)"
        r"|Bootstrap)|include/socket\.h:[0-9]+ WARN |nvshmem/src/[^|]{1,200}: (?:non-zero status|NULL value|aborting)",
        Outcome.CRASHED,
        "a connection between ranks failed",
        "NCCL",
        "if no rank ended before, name the network with NCCL_SOCKET_IFNAME",
        weight=DEATH,
        passing=True,
        words=("NCCL WARN ", "include/socket.h:", "nvshmem/src/"),
    ),
    signature(
        r"[Ww]atchdog caught collective operation timeout|Timed out waiting [0-9]+ ?ms for \w+ operation"
        r"|failed to pass monitoredBarrier|DeepEP error: (?:CPU recv |dispatch |combine )?time ?out"
        r"|DeepEP (?:(?:dispatch|combine)[^|]{0,80} timeout|timeout check failed: )",
        Outcome.HUNG,
        "a collective operation timed out",
        "PyTorch",
        "look for the rank whose log ends first; --retry-hang-sync repeats the job with CUDA_LAUNCH_BLOCKING=1",
        words=(
            "DeepEP ",
            "Timed out waiting ",
            "failed to pass monitoredBarrier",
            "atchdog caught collective operation timeout",
        ),
    ),
    signature(
        r"\bno (?:output|progress|heartbeat) for [0-9.]{1,12} ?s(?:ec|econds)?\b[^|]{0,80}?"
        r"(?:SIGTERM|SIGKILL|[Kk]ill|[Tt]erminat)"
        r"|\bDid not get (?:initial|subsequent) heartbeat\. Waited "
        r"|DistStoreError: wait timeout|store->get\('[^']{0,80}'\) got error: wait timeout",
        Outcome.HUNG,
        "something was waited for in vain",
        "PyTorch",
        "look for the rank whose log ends first",
        words=("no heartbeat for ", "no output for ", "no progress for ", "wait timeout", "Did not get "),
    ),
    signature(
        r"by subset of ranks and are waiting for remainder of ranks for more than [0-9]+ seconds"
        r"|[Hh]ang detected\b",
        Outcome.HUNG,
        "something was waited for in vain",
        "Horovod, nvidia-resiliency-ext",
        weight=DEATH,
        passing=True,
        words=("waiting for remainder of ranks", "ang detected"),
    ),
    # The rank of which they tell may say itself what it failed of. NCCL's exceptions quote its last warning.
    signature(
        r"remote process (?:has )?exited|\bncclRemoteError\b|NET/IBP? ?: ?Got completion",
        Outcome.CRASHED,
        NCCL,
        "NCCL",
        weight=BARE,
        passing=True,
        words=("remote process ", "ncclRemoteError", "Got completion"),
    ),
    signature(
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
    signature(
        r"\.(?:cc|cpp|h):[0-9]+ NCCL WARN (?!Call to|Failed to open|[^|]{0,200}(?:[Ff]alling back|[Ii]gnor|[Rr]etry))",
        Outcome.CRASHED,
        NCCL,
        "NCCL",
        weight=BARE,
        passing=True,
        words=(" NCCL WARN ",),
    ),
    # Its rank was stopped by the watchdog, or by another rank's error.
    signature(
        r"NCCL communicator was aborted",
        Outcome.CRASHED,
        NCCL,
        "PyTorch",
        weight=DEATH,
        words=("NCCL communicator was aborted",),
    ),
    signature(
        r"Some NCCL operations have failed or timed out|watchdog thread terminated|DistStoreError: Timed out"
        r"|Timeout at NCCL work: [0-9]|Heartbeat monitor timed out"
        r"|due to \w{1,40} watchdog hang|due to a collective timeout from {1,4}rank"
        r"|watchdog got stuck for [0-9]+ seconds",
        Outcome.HUNG,
        "a collective operation timed out",
        "PyTorch",
        "look for the rank whose log ends first",
        weight=DEATH,
        words=(
            "DistStoreError: Timed out",
            "Heartbeat monitor timed out",
            "Some NCCL operations have failed or timed out",
            "Timeout at NCCL work: ",
            " watchdog hang",
            "due to a collective timeout from ",
            "watchdog got stuck for ",
            "watchdog thread terminated",
        ),
    ),
    signature(
        r"EADDRINUSE|[Aa]ddress already in use|on port `[0-9]{1,5}`, but another process is utilizing it",
        Outcome.CRASHED,
        "a port is in use",
        "PyTorch",
        "use torchrun --standalone, or another --master-port for each job",
        words=("EADDRINUSE", "ddress already in use", "another process is utilizing it"),
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
        r"\[W[^\]]{1,80}\] \[c10d\] The client socket has failed",
        Outcome.CRASHED,
        "the ranks did not find each other",
        "torchrun",
        weight=BARE,
        words=("The client socket has failed",),
    ),
    signature(
        r"(?<!error of type )\bRendezvous(?:Timeout|Connection|Closed|State)?Error\b"
        r"|The client socket has (?:failed|timed out)"
        r"|TCPStore[^|]{0,200}?timed out|DistNetworkError(?!: [Ff]ailed to recv)"
        r"|failed to connect to [^|]{0,200}?TCPStore"
        r"|Timed out initializing process group|connect\(\) timed out\. Original timeout was"
        r"|failed to listen on any local network address|\bhost not found: (?:Name|Temporary|No address)",
        Outcome.CRASHED,
        "the ranks did not find each other",
        "torchrun",
        "check that every node starts as many ranks as torchrun expects, and the address and port of rank 0",
        words=(
            *("DistNetworkError", "Rendezvous", "TCPStore", "The client socket has ", "Timed out initializing"),
            *("any local network address", "connect() timed out", "host not found: "),
        ),
    ),
)
