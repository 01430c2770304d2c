"""Ranks that do not find each other, ports in use, nodes that are not reached."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "port": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use',
        "CRASHED",
        "a port is in use",
        "torch.distributed.DistNetworkError",
    ),
    "rendezvous": (
        'Traceback (most recent call last):\n  File "/usr/bin/torchrun", line 8, in <module>\n    sys.exit(main())\ntorch.distributed.elastic.rendezvous.api.RendezvousTimeoutError',
        "CRASHED",
        "the ranks could not find each other",
        "torch.distributed.elastic",
    ),
    "client socket": (
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (node01, 29500).",
        "CRASHED",
        "the ranks could not find each other",
        "torch.distributed",
    ),
    "store, some ranks never came": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=8, worker_count=4, timeout=0:30:00)',
        "CRASHED",
        "the ranks could not find each other",
        "RuntimeError: Timed out initializing",
    ),
    "rendezvous, no connection": (
        '[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to 192.0.0.1:1234\nTraceback (most recent call last):\n  File "/usr/bin/torchrun", line 8, in <module>\n    sys.exit(main())\ntorch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.',
        "CRASHED",
        "the ranks could not find each other",
        "[E socket.cpp:860]",
    ),
    "port, through deepspeed": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29501 (errno: 98 - Address already in use).',
        "CRASHED",
        "a port is in use",
        "RuntimeError: The server socket",
    ),
    "ssh refuses the key": (
        "node02: user@node02: Permission denied (publickey,password).\npdsh@node01: node02: ssh exited with exit code 255",
        "CRASHED",
        "a node could not be reached",
        "node02: user@node02",
    ),
    "ssh knows no such host": (
        "ssh: Could not resolve hostname node0: Name or service not known\npdsh@node01: node0: ssh exited with exit code 255",
        "CRASHED",
        "a node could not be reached",
        "ssh: Could not resolve",
    ),
    "deepspeed cannot reach a host": (
        'Traceback (most recent call last):\n  File "/opt/deepspeed/launcher/runner.py", line 437, in main\n    subprocess.check_call(ssh_check_cmd)\nsubprocess.CalledProcessError: Command \'ssh -o PasswordAuthentication=no 192.0.2.100 hostname\' returned non-zero exit status 255.\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File "/opt/bin/deepspeed", line 6, in <module>\n    main()\nRuntimeError: Using hostfile at /etc/hostfile but host=192.0.2.100 was not reachable via ssh. If you are running with a single node please remove /etc/hostfile or setup passwordless ssh.',
        "CRASHED",
        "a node could not be reached",
        "RuntimeError: Using hostfile",
    ),
    "client socket refused": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (node01, 29500). The client socket has failed to connect to node01:29500 (errno: 111 - Connection refused).',
        "CRASHED",
        "the ranks could not find each other",
        "torch.distributed.DistNetworkError",
    ),
    "c10d connect old": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nRuntimeError: connect() timed out. Original timeout was 60000 ms.\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.',
        "CRASHED",
        "the ranks could not find each other",
        "RuntimeError: connect() timed out. Origi",
    ),
    "socket bind": (
        "[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:12211 (errno: 98 - Address already in use).\n[W socket.cpp:436] [c10d] The server socket has failed to bind to 0.0.0.0:12211 (errno: 98 - Address already in use).\n[E socket.cpp:472] [c10d] The server socket has failed to listen on any local network address.",
        "CRASHED",
        "a port is in use",
        "[W socket.cpp:436] [c10d] The server soc",
    ),
    "port of accelerate": (
        "ConnectionError: Tried to launch distributed communication on port `29500`, but another process is utilizing it. Please specify a different port (such as using the `--main_process_port` flag or specifying a different `main_process_port` in your config file) and rerun your script.",
        "CRASHED",
        "a port is in use",
        "ConnectionError: Tried to launch distrib",
    ),
    "rendezvous json": (
        'INFO:torch.distributed.elastic.agent.server.api:[default] Rendezvous\'ing worker group\nERROR:torch.distributed.elastic.multiprocessing.errors.error_handler:{\n  "message": {\n    "message": "RendezvousClosedError: ",\n    "extraInfo": {\n      "py_callstack": "Traceback (most recent call last):\\n  File \\"/opt/conda/lib/python3.7/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py\\", line 345, in wrapper\\n    return f(*args, **kwargs)\\n",\n      "timestamp": "1658205613"\n    }\n  }\n}',
        "CRASHED",
        "the ranks could not find each other",
        '"message": "RendezvousClosedError: ",',
    ),
    "host not found": (
        'Traceback (most recent call last):\n  File "/opt/conda/lib/python3.7/site-packages/torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py", line 156, in _create_tcp_store\n    host, port, is_master=is_server, timeout=timedelta(seconds=read_timeout)\nValueError: host not found: Name or service not known',
        "CRASHED",
        "the ranks could not find each other",
        "ValueError: host not found: Name or serv",
    ),
    "port, thread": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use',
        "CRASHED",
        "a port is in use",
        "torch.distributed.DistNetworkError: The ",
    ),
    "vllm server not reached": (
        "[E516 10:05:30.089184418 socket.cpp:1023] [c10d] The client socket has timed out after 300000ms while trying to connect to (0.0.0.0, 51216).\n[W516 10:05:30.089703847 TCPStore.cpp:330] [c10d] TCP client failed to connect/validate to host 0.0.0.0:51216 - retrying (try=0, timeout=300000ms, delay=34306ms): The client socket has timed out after 300000ms while trying to connect to (0.0.0.0, 51216).\nException raised from throwTimeoutError at /pytorch/torch/csrc/distributed/c10d/socket.cpp:1025 (most recent call first):",
        "CRASHED",
        "the ranks could not find each other",
        "[E516 10:05:30.089184418 socket.cpp:1023",
    ),
    "address": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\ntorch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use',
        "CRASHED",
        "a port is in use",
        "torch.distributed.DistNetworkError: The ",
    ),
    "thread: store's protocol": (
        'n2: Traceback (most recent call last):\nn2:   File "/opt/torch/distributed/rendezvous.py", line 177, in _create_c10d_store\nn2:     return TCPStore(\nn2: RuntimeError: Stop_waiting response is expected',
        "CRASHED",
        "the ranks could not find each other",
        "RuntimeError: Stop_waiting response is e",
    ),
    "clients of the store": (
        "[rank0]: torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/3 clients joined.",
        "CRASHED",
        "the ranks could not find each other",
        "torch.distributed.DistStoreError: Timed",
    ),
    "coordinator's barrier": (
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:\n/job:jax_worker/replica:0/task:1",
        "CRASHED",
        "the ranks could not find each other",
        "jaxlib.xla_extension.XlaRuntimeError",
    ),
    "address of a node": (
        "srun: error: fwd_tree_thread: can't find address for host ip-10-0-44-87, check slurm.conf\nsrun: error: Task launch for 14.0 failed on node ip-10-0-44-87: Can't find an address, check slurm.conf\nsrun: error: Application launch failed: Can't find an address, check slurm.conf",
        "CRASHED",
        "a node could not be reached",
        "srun: error: fwd_tree_thread",
    ),
    "registration of tasks": (
        "Original error: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0. This usually happens because a task triggered the barrier too early or too slowly.",
        "CRASHED",
        "the ranks could not find each other",
        "Original error: DEADLINE_EXCEEDED",
    ),
    "message: port": (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "CRASHED",
        "a port is in use",
        "torch.distributed.DistNetworkError: The ",
    ),
    "message: hostname": (
        "torch.distributed.DistNetworkError: The IPv6 network addresses of (node-0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
        "CRASHED",
        "the ranks could not find each other",
        "torch.distributed.DistNetworkError: The ",
    ),
    "source: mpi daemon": (
        "ORTE was unable to reliably start one or more daemons.\nThis usually is caused by:",
        "CRASHED",
        "a node could not be reached",
        "ORTE was unable to reliably start one or",
    ),
}
