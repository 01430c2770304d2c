"""Signatures of failures on GPUs and in the libraries of their vendors."""

from __future__ import annotations

from typing import Final

from tuner.core.outcomes import Outcome
from tuner.logs.signature import DEVICE, NOT_A_NUMBER, OUT_OF_MEMORY, Signature

_DEVICE: Final = r"(?:CUDA|HIP|XPU|NPU|MUSA|GPU)"
_ERROR: Final = (
    r"(?:(?:CUDA|HIP)(?: driver| runtime)? [Ee]rror(?: \([^()|]{1,200}\))?: |Triton Error \[\w+\]: "
    r"|cuda runtime error \([0-9]+\) : |CUDA error \S{1,200} '|\bError (?=[^|]{1,80} at line [0-9]{1,6} in file ))"
)
"""The text before an error message of the runtime (`cudaGetErrorString`, `hipGetErrorString`)."""
_FAILED: Final = r"Cuda failure (?:\S{1,200} )?'"
"""The same for NCCL, which continues after errors of mere attempts."""
_LIBRARIES: Final = ("cuBLAS", "cuBLASLt", "cuDNN", "cuFFT", "cuSOLVER", "cuSPARSE", "cuRAND")
_ERROR_WORDS: Final = (
    "CUDA error: ",
    "CUDA Error: ",
    "HIP error: ",
    " driver error: ",
    " runtime error",
    "CUDA error ",
    "Triton Error [",
    " in file ",
)

DEVICE_SIGNATURES: Final = (
    # A sentence that only mentions these words, such as advice, is neither an exception nor an allocation.
    Signature(
        rf"\b{_DEVICE} out of memory[.:] ?(?:Tried to allocate|\s*$)|Error: {_DEVICE} out of memory\b"
        r"|\bMPS backend out of memory \(|\bCUDA_ERROR_OUT_OF_MEMORY\b|\bUR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\b"
        r"|\bZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY\b"
        r"|\btorch\.(?:\w+\.)?OutOfMemoryErr(?:or(?::|\s*$)|o?$)|\bRayTaskError\(OutOfMemoryError\)"
        r"|\b(?:CUDA|HIP)[\w ]*(?:[Ee]rror|failure)\b[^|]{0,40}out of memory|(?:CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
        r"|\bCUFFT_ALLOC_FAILED\b|\bcuBLAS Error: the resource allocation failed"
        r"|\berror == cudaSuccess\. 2 vs 0\b|\bcuda failed with error 2 out of memory\b"
        r"|: No available memory for the cache blocks\b"
        r"|\bTriton Error \[\w+\]: out of memory|\b(?:cuda|hip)ErrorMemoryAllocation\b"
        r"|\b(?:RESOURCE_EXHAUSTED|Resource exhausted): (?:Out of memory|OOM |Attempting to (?:reserve|allocate)"
        r"|Failed to allocate request"
        r"|[^|]{0,120}?Ran out of memory)"
        r"|\bhipErrorOutOfMemory\b|^Error out of memory at line [0-9]+ in file"
        r"|\bOutOfMemoryError: Out of memory allocating|\bOut of memory error on GPU"
        r"|FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed|OOM when allocating tensor with [^|]{0,300}device:GPU",
        Outcome.OOM,
        "a GPU ran out of memory",
        "PyTorch",
        "use a smaller micro-batch size, more recompute or a higher ZeRO stage",
        weight=OUT_OF_MEMORY,
        words=(
            "ErrorMemoryAllocation",
            "_ERROR_OUT_OF_",
            "OutOfMemoryErr",
            "RESOURCE_EXHAUSTED: ",
            "Resource exhausted: ",
            "Out of memory error on GPU",
            "MODULE:PT_DEVMEM",
            "OOM when allocating tensor",
            "_ALLOC_FAILED",
            *("cuBLAS Error: ", "cudaSuccess. 2 vs 0", "memory for the cache blocks"),
            "hipErrorOutOfMemory",
            "out of memory",
        ),
    ),
    # Warnings, after which the allocator frees memory.
    Signature(
        r"\bexpandable_segments: memory mapping failed with OOM\b|\bAllocation failed : Device memory : required :",
        Outcome.OOM,
        "a GPU ran out of memory",
        "PyTorch",
        weight=OUT_OF_MEMORY,
        passing=True,
        words=("expandable_segments: memory mapping failed", "Allocation failed : Device memory"),
    ),
    Signature(
        r"NCCL WARN (?:(?!NCCL WARN )[^|]){0,400}?"
        r"(?:[Ff]ailed to (?:CUDA )?(?:[cm]alloc|allocate)|out of memory|cuda ?[Mm]alloc)"
        r"|\bCuda failure (?:[0-9]+ )?'out of memory'|\bFailed to CUDA (?:host )?[cm]alloc(?: async)? [0-9]+ bytes",
        Outcome.OOM,
        "NCCL found no GPU memory for its buffers",
        "NCCL",
        "leave 1 to 3 GiB for NCCL in addition to PyTorch's memory",
        weight=OUT_OF_MEMORY,
        words=("NCCL WARN ", "Cuda failure ", "Failed to CUDA "),
    ),
    Signature(
        r"uncorrectable (?:ECC|NVLink) error|NVRM: (?:Xid|RmInitAdapter failed|rm_init_adapter failed)"
        r"|\bXid \(PCI:|fallen off the bus"
        r"|cudaErrorECC|hipErrorECC"
        rf"|{_ERROR}(?:unknown error|an? ?(?:NVLink|peer access)\b|hardware stack error|[Ii]nvalid access of peer GPU"
        r"|GPU is lost|device(?:\(s\))? (?:is|are) (?:not )?(?:lost|removed)|contained|tensor memory leak)"
        r"|GPU is lost"
        rf"|{_FAILED}(?:unknown error|an? ?(?:NVLink|peer access)\b|hardware stack error)"
        r"|\b(?:UR|ZE)_RESULT_ERROR_DEVICE_LOST\b"
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
            "Cuda failure ",
            "ERROR_DEVICE_LOST",
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
    # Monitors continue after it.
    Signature(
        r"\bNVMLError_(?:Unknown|GpuIsLost|ResetRequired)\b",
        Outcome.CRASHED,
        "a GPU failed",
        "the CUDA driver",
        weight=DEVICE,
        passing=True,
        words=("NVMLError_",),
    ),
    Signature(
        rf"{_ERROR}(?:invalid device (?:ordinal|function)|all CUDA-capable devices are busy|no kernel image"
        r"|CUDA-capable device|no (?:CUDA|ROCm|HIP)-capable device|the provided PTX|system not yet initialized"
        r"|system has unsupported display driver|forward compatibility was attempted|device kernel image is invalid"
        r"|initialization error|(?:CUDA )?driver version is insufficient|OS call failed|Missing co for this ISA)"
        rf"|{_FAILED}(?:no CUDA-capable device|system not yet initialized|initialization error|all CUDA-capable devices"
        r"|CUDA driver version is insufficient|forward compatibility was attempted)"
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
        r"|MisconfigurationException(?:: |\(['\"])(?:You requested gpu: |No supported gpu backend)"
        r"|^ {0,40}But your machine only has: \["
        r"|device < num_gpus INTERNAL ASSERT FAILED|\bDevice acquire failed",
        Outcome.CRASHED,
        "no usable GPU",
        "PyTorch",
        "request as many GPUs as ranks, and install a torch built for them: `tuner doctor`",
        words=(
            *_ERROR_WORDS,
            "Cuda failure ",
            "CUDA driver initialization failed",
            "CUDA driver version is insufficient",
            "ProcessGroupNCCL is only",
            "CUDA unknown error",
            "Device acquire failed",
            "device < num_gpus INTERNAL ASSERT",
            "CUDA_ERROR_",
            "Found no NVIDIA driver",
            "GPUs are available",
            "GetDeviceCount()",
            "But your machine only has: ",
            "MisconfigurationException",
            "NVIDIA driver on your system",
            "cudaError",
            "hipError",
            "not compiled with ",
        ),
    ),
    Signature(
        r"\bAssertion `probability tensor contains either ",
        Outcome.CRASHED,
        NOT_A_NUMBER,
        "PyTorch",
        weight=DEVICE,
        words=("Assertion `probability",),
    ),
    Signature(
        rf"{_ERROR}(?:device-side assert|an illegal (?:memory access|instruction)|misaligned address"
        r"|unspecified launch failure|the launch timed out|invalid (?:argument|configuration|program counter|pitch)"
        r"|operation not supported on global|too many resources requested|cluster )"
        rf"|{_FAILED}(?:device-side assert|an illegal (?:memory access|instruction)|misaligned address"
        r"|unspecified launch failure|the launch timed out)"
        r"|HIP error: |aborting with error : HSA_STATUS_ERROR"
        r"|Assertion failed: [^|]{1,300}\.cuh?:[0-9]+, condition: "
        r"|(?:block: \[|\.cuh?:)[^|]{0,300}Assertion `[^`']{1,200}[`'](?: failed|\s*$)"
        r"|Memory access fault by GPU|CUDA Exception: "
        r"|\b(?:cuda|hip)Error(?:IllegalAddress|IllegalInstruction|MisalignedAddress|LaunchFailure|LaunchTimeO?ut"
        r"|Assert"
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
            *("Assertion `", "Assertion failed: "),
            "CUDA Exception: ",
            "CUDA_ERROR_",
            "Cuda failure ",
            "HSA_STATUS_ERROR",
            "Memory access fault by GPU",
            "cudaError",
            "hipError",
        ),
    ),
    Signature(
        r"\b(?:CUBLAS|CUDNN|CUSPARSE|CUSOLVER|CURAND|HIPBLAS|ROCBLAS|MIOPEN)_STATUS_(?!SUCCESS)[A-Z_]+\b"
        r"|\bcu(?:BLAS(?:Lt)?|DNN|FFT|SOLVER|SPARSE|RAND)(?: Frontend)? [Ee]rror: |\bmiopenStatus(?!Success)[A-Z]\w+"
        r"|\bcu(?:BLAS(?:Lt)?|SPARSE) API failed with |\bcublasLt ran into an error"
        r"|^!!!! kernel execution error\.",
        Outcome.CRASHED,
        "cuBLAS or cuDNN failed",
        "PyTorch",
        "often too little memory, or libraries of another CUDA version; try a smaller micro-batch size first",
        words=(
            *("_STATUS_", "miopenStatus", "cuDNN Frontend error: ", "!!!! kernel execution error"),
            *(" API failed with ", "cublasLt ran into an error"),
            *(f"{library} {error}: " for library in _LIBRARIES for error in ("error", "Error")),
        ),
    ),
)
