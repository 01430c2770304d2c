"""Modules that are missing."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "a compiler without CUDA's headers": (
        "sh: /opt/conda/lib/libtinfo.so.6: no version information available (required by sh)\ncc1plus: fatal error: cuda_runtime.h: No such file or directory\ncompilation terminated.",
        "CRASHED",
        "an extension could not be compiled",
        "cc1plus: fatal error",
    ),
    "a build that stopped": (
        "ninja: build stopped: subcommand failed.\nLoading extension module fused_adam...\n[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/torch/utils/cpp_extension.py\", line 2104, in _run_ninja_build\n[rank0]:     subprocess.run(\n[rank0]: subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        "CRASHED",
        "an extension could not be compiled",
        "ninja: build stopped",
    ),
    "module": (
        "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    import flash_attn\nModuleNotFoundError: No module named 'flash_attn'\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============================================================\ntrain.py FAILED\n------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-03-04_10:00:00\n  host      : node01\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 4242)\n  error_file: <N/A>\n",
        "CRASHED",
        "a dependency is missing",
        "ModuleNotFoundError",
    ),
    "accelerate": (
        "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    import peft\nModuleNotFoundError: No module named 'peft'\nTraceback (most recent call last):\n  File \"/usr/bin/accelerate\", line 8, in <module>\n    sys.exit(main())\nsubprocess.CalledProcessError: Command '['/usr/bin/python3', 'train.py']' returned non-zero exit status 1.",
        "CRASHED",
        "a dependency is missing",
        "ModuleNotFoundError",
    ),
    "import of a name": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: ImportError: cannot import name 'LlamaFlashAttention2' from 'transformers.models.llama.modeling_llama' (/opt/x.py)",
        "CRASHED",
        "a dependency is missing",
        "ImportError",
    ),
    "shared library": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: ImportError: libcudart.so.12: cannot open shared object file: No such file or directory',
        "CRASHED",
        "a dependency is missing",
        "ImportError",
    ),
    "undefined symbol": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: ImportError: /opt/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi',
        "CRASHED",
        "a dependency is missing",
        "ImportError",
    ),
    "undefined symbol of a lazy import": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: Failed to import trl.trainer.gkd_trainer because of the following error (look up to see its traceback):\n[rank0]: Failed to import transformers.modeling_utils because of the following error (look up to see its traceback):\n[rank0]: /usr/local/lib/python3.10/dist-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2E',
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Failed to import",
    ),
    "libstdc++ too old": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.30\' not found (required by /home/u/.cache/torch_extensions/py38_cu117/async_io/async_io.so)',
        "CRASHED",
        "a dependency is missing",
        "ImportError",
    ),
    "module, through srun --label": (
        "0: Traceback (most recent call last):\n0:   File \"train.py\", line 3, in <module>\n0:     import megatron\n0: ModuleNotFoundError: No module named 'megatron'\nsrun: error: node01: task 0: Exited with exit code 1",
        "CRASHED",
        "a dependency is missing",
        "ModuleNotFoundError",
    ),
    "module prefix path": (
        "Megatron-LM/examples/run_simple_mcore_train_loop.py\", line 18, in <module>\n    from megatron.training.tokenizer.tokenizer import _NullTokenizer\nModuleNotFoundError: No module named 'megatron.training'",
        "CRASHED",
        "a dependency is missing",
        "ModuleNotFoundError: No module named 'me",
    ),
    "no module spec": (
        "/usr/bin/python3: Error while finding module specification for 'axolotl.cli.train' (ModuleNotFoundError: No module named 'axolotl')",
        "CRASHED",
        "a dependency is missing",
        "/usr/bin/python3: Error while finding mo",
    ),
    "no module plain": (
        "/usr/bin/python3: No module named deepspeed",
        "CRASHED",
        "a dependency is missing",
        "/usr/bin/python3: No module named deepsp",
    ),
    "library not found": (
        "OSError: libcublas.so.11: cannot open shared object file: No such file or directory",
        "CRASHED",
        "a dependency is missing",
        "OSError: libcublas.so.11: cannot open sh",
    ),
    "package metadata": (
        "importlib.metadata.PackageNotFoundError: No package metadata was found for transformer-engine",
        "CRASHED",
        "a dependency is missing",
        "importlib.metadata.PackageNotFoundError:",
    ),
    "distribution not found": (
        "pkg_resources.DistributionNotFound: The 'transformers==4.35' distribution was not found and is required by the application",
        "CRASHED",
        "a dependency is missing",
        "pkg_resources.DistributionNotFound: The ",
    ),
    "no nccl built in": (
        "RuntimeError: Distributed package doesn't have NCCL built in",
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Distributed package doesn'",
    ),
    "binary incompatibility": (
        "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject",
        "CRASHED",
        "a dependency is missing",
        "ValueError: numpy.dtype size changed, ma",
    ),
    "a try to connect first": (
        '[W socket.cpp:697] [c10d] The client socket has failed to connect to [n1]:61215 (system error: 10049 - x).\nTraceback (most recent call last):\n  File "train.py", line 123, in <module>\n    trainer.fit(model, ckpt_path=args.ckpt)\nRuntimeError: Distributed package doesn\'t have NCCL built in',
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Distributed package doesn'",
    ),
    "llamafactory version": (
        'Traceback (most recent call last):\n  File "/opt/bin/llamafactory-cli", line 8, in <module>\n    sys.exit(main())\nImportError: transformers>=4.41.2,<=4.45.0 is required for a normal functioning of this module, but found transformers==4.45.2.\nTo fix: run `pip install transformers>=4.41.2,<=4.45.0` or set `DISABLE_VERSION_CHECK=1` to skip this check.',
        "CRASHED",
        "a dependency is missing",
        "ImportError: transformers>=4.41.2,<=4.45",
    ),
    "glibc": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32\' not found (required by /usr/local/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so)',
        "CRASHED",
        "a dependency is missing",
        "ImportError: /lib/x86_64-linux-gnu/libc.",
    ),
    "failed to import": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: Failed to import transformers.models.clip.modeling_clip because of the following error (look up to see its traceback):\n/lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32\' not found',
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Failed to import transform",
    ),
    "wrong apex": (
        "Traceback (most recent call last):\n  File \"/opt/train.py\", line 9, in <module>\n    main()\nImportError: cannot import name 'UnencryptedCookieSessionFactoryConfig' from 'pyramid.session' (unknown location)\nE0202 14:00:27.983000 3957034 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: 1) local_rank: 0 (pid: 3957105) of binary: /opt/bin/python3.10",
        "CRASHED",
        "a dependency is missing",
        "ImportError: cannot import name 'Unencry",
    ),
    "ninja": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)',
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Ninja is required to load ",
    ),
    "flash attention not installed": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: the package flash_attn seems to be not installed. Please refer to the documentation of https://huggingface.co/docs/transformers/perf_infer_gpu_one#flashattention-2 to install Flash Attention 2.',
        "CRASHED",
        "a dependency is missing",
        "ImportError: FlashAttention2 has been to",
    ),
    "cpu adam so": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nImportError: /opt/.cache/torch_extensions/py38_cu117/cpu_adam/cpu_adam.so: cannot open shared object file: No such file or directory',
        "CRASHED",
        "a dependency is missing",
        "ImportError: /opt/.cache/torch_extension",
    ),
    "no module torch": (
        "/usr/bin/python3: Error while finding module specification for 'torch.distributed.run' (ModuleNotFoundError: No module named 'torch')",
        "CRASHED",
        "a dependency is missing",
        "/usr/bin/python3: Error while finding mo",
    ),
    "unsloth link": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nImportError: CUDA is not linked properly.\nWe tried running `ldconfig /usr/lib64-nvidia` ourselves, but it didn\'t work.',
        "CRASHED",
        "a dependency is missing",
        "ImportError: CUDA is not linked properly",
    ),
    "apex": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/opt/train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: ModuleNotFoundError: No module named 'amp_C'",
        "CRASHED",
        "a dependency is missing",
        "ModuleNotFoundError: No module named 'am",
    ),
    "no nccl on windows": (
        'Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1\n[W socket.cpp:697] [c10d] The client socket has failed to connect to [n1]:61215 (system error: 10049).\nTraceback (most recent call last):\n  File "train.py", line 123, in <module>\n    trainer.fit(model, ckpt_path=args.ckpt)\nRuntimeError: Distributed package doesn\'t have NCCL built in',
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Distributed package doesn'",
    ),
    "apex required": (
        "RuntimeError: Apex required to use megatron.",
        "CRASHED",
        "a dependency is missing",
        "RuntimeError: Apex required to use megat",
    ),
    "source: mkl": (
        "Intel MKL FATAL ERROR: Cannot load libmkl_core.so.1.",
        "CRASHED",
        "a dependency is missing",
        "Intel MKL FATAL ERROR: Cannot load libmk",
    ),
    "source: glibc": (
        "python: /lib64/libm.so.6: version `GLIBC_2.29' not found (required by python)",
        "CRASHED",
        "a dependency is missing",
        "python: /lib64/libm.so.6: version `GLIBC",
    ),
    "configuration: uv lock": (
        "error: Failed to fetch: `https://pypi.org/simple/torch/`\n  Caused by: Could not connect, are you offline?",
        "CRASHED",
        "a dependency is missing",
        "error: Failed to fetch: `https://pypi.or",
    ),
    "configuration: pip no match": (
        "ERROR: Could not find a version that satisfies the requirement flash-attn==9.9 (from versions: none)\nERROR: No matching distribution found for flash-attn==9.9",
        "CRASHED",
        "a dependency is missing",
        "ERROR: Could not find a version that sat",
    ),
}
