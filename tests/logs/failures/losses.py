"""Losses that are no numbers, and loss scales at their minimum."""

# ruff: noqa: E501 - a log's lines are as long as they are

from __future__ import annotations

from typing import Final

CASES: Final = {
    "loss scale": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.',
        "CRASHED",
        "the loss scale is at its minimum",
        "Exception",
    ),
    "nan, megatron": (
        "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: Unexpected result nan (message='found NaN in local forward loss calculation')",
        "CRASHED",
        "the loss is not a number",
        "RuntimeError",
    ),
    "nan, gradients": (
        "AssertionError: Rank 3: found NaN in local grad norm in backward pass before data-parallel communication collective.",
        "CRASHED",
        "the loss is not a number",
        "AssertionError",
    ),
    "nan, iterations": (
        " iteration 1/ 500 | elapsed time per iteration (ms): 812.3 | loss scale: 1.0 | grad norm: nan | number of skipped iterations:   0 | number of nan iterations:   1 |\n iteration 2/ 500 | elapsed time per iteration (ms): 812.3 | loss scale: 1.0 | grad norm: nan | number of skipped iterations:   0 | number of nan iterations:   1 |\n iteration 3/ 500 | elapsed time per iteration (ms): 812.3 | loss scale: 1.0 | grad norm: nan | number of skipped iterations:   0 | number of nan iterations:   1 |\n",
        "CRASHED",
        "the loss is not a number",
        "iteration 1/",
    ),
    "nan, hugging face": (
        "{'loss': nan, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.1}",
        "CRASHED",
        "the loss is not a number",
        "{'loss': nan",
    ),
    "nan, gradient bucket": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: Rank 3, node node01, device 3, iteration 12: found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective. Message: ',
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: Rank 3",
    ),
    "nan, rerun": (
        "ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 0 at iteration #3 invocation #1 (message='found NaN in local forward loss calculation')",
        "CRASHED",
        "the loss is not a number",
        "ERROR:megatron",
    ),
    "gradients, non-finite": (
        'WARNING: grad norm: inf, skipping step\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped.',
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: The total norm",
    ),
    "nan, lit-llama": (
        "iter 3196: loss nan, time: 134.94ms\niter 3197: loss nan, time: 134.20ms\niter 3198: loss nan, time: 134.61ms",
        "CRASHED",
        "the loss is not a number",
        "iter 3",
    ),
    "nan, composer": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: RuntimeError: Train loss contains a NaN.',
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: Train loss",
    ),
    "nan, lightning": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: ValueError: The loss returned in `training_step` is nan.',
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
    "ray worker trace": (
        "(ActorWorker(actor_train-1) pid=18175, ip=10.0.0.2) [2025-10-11 11:16:52] [decorator.py (306)] [ERROR] [actor_train-1 1 / 8][PID 18175] Traceback (most recent call last):\n(ActorWorker(actor_train-1) pid=18175, ip=10.0.0.2)   File \"/a/decorator.py\", line 295, in inner\n(ActorWorker(actor_train-1) pid=18175, ip=10.0.0.2)     result = func(*args, **kwargs)\n(ActorWorker(actor_train-1) pid=18175, ip=10.0.0.2) RuntimeError: Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective')",
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: Unexpected result nan",
    ),
    "ray task error": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nray.exceptions.RayTaskError(RuntimeError): ray::MegatronTrainRayActor.train() (pid=2407496, ip=172.17.0.2, actor_id=f1b740f0)\n           ^^^^^^^^^^\n  File "/opt/slime/actor.py", line 311, in train\n    return self.train_actor(rollout_id, rollout_data)\n  File "/opt/Megatron-LM/megatron/core/x.py", line 644, in f\n    config.finalize_model_grads_func(\nRuntimeError: Unexpected result nan (message=\'found NaN in local grad norm\')',
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: Unexpected result nan (mes",
    ),
    "interleaved assert": (
        'Traceback (most recent call last):\n    assert not total_norm.isnan(), (\n  File "/a/pretrain_megatron_baichuan.py", line 101, in <module>\nAssertionError: Rank 3: found NaN in local grad norm in backwards pass. Device: 3, node: n1\n    pretrain(train_valid_test_datasets_provider,',
        "CRASHED",
        "the loss is not a number",
        "AssertionError: Rank 3: found NaN in loc",
    ),
    "nan check": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 9, in <module>\n[rank0]:     main()\n[rank0]: AssertionError: found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective. Device: 3, node: gpu-1',
        "CRASHED",
        "the loss is not a number",
        "AssertionError: found NaN in local grad ",
    ),
    "megatron rerun": (
        "[rank5]: RuntimeError: Rank 5, node gpu-2, device 5, iteration 1201: Unexpected result nan (message='found NaN in local forward loss calculation')",
        "CRASHED",
        "the loss is not a number",
        "[rank5]: RuntimeError: Rank 5, node gpu-",
    ),
    "grad inf": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nFloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try lowering the learning rate, using gradient clipping or increasing the batch size.',
        "CRASHED",
        "the loss scale is at its minimum",
        "FloatingPointError: Minimum loss scale r",
    ),
    "deepspeed scale": (
        'Traceback (most recent call last):\n  File "/opt/train.py", line 9, in <module>\n    main()\nException: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.',
        "CRASHED",
        "the loss scale is at its minimum",
        "Exception: Current loss scale already at",
    ),
    "thread: nan loss as an exception": (
        'Traceback (most recent call last):\n  File "/opt/olmo/train.py", line 690, in train_step\n    raise ValueError("nan loss encountered")\nValueError: nan loss encountered',
        "CRASHED",
        "the loss is not a number",
        "ValueError: nan loss encountered",
    ),
    "thread: probability tensor": (
        "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: probability tensor contain",
    ),
    "thread: nan of a tensor": (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/models/flow_module.py", line 130, in model_step\n[rank0]:     raise ValueError("NaN encountered in pred_rots_vf")\n[rank0]: ValueError: NaN encountered in pred_rots_vf',
        "CRASHED",
        "the loss is not a number",
        "ValueError: NaN encountered in pred_rots",
    ),
    "thread: probabilities that are no numbers": (
        '  0%|        | 2/87543 [00:18<223:50:10,  9.20s/it]../aten/src/ATen/native/cuda/TensorCompare.cu:110: _assert_async_cuda_kernel: block: [0,0,0], thread: [0,0,0] Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.\nTraceback (most recent call last):\n  File "/opt/example.py", line 27, in <module>\n    trainer.train()\nRuntimeError: CUDA error: device-side assert triggered',
        "CRASHED",
        "the loss is not a number",
        "0%| | 2/87543 [00:18<223:50:10, 9.20s/it",
    ),
    "nan or inf": (
        'Traceback (most recent call last):\n  File "train.py", line 90, in step\n    raise ValueError\nValueError: NaN or Inf encountered. Training failed!',
        "CRASHED",
        "the loss is not a number",
        "ValueError: NaN or Inf encountered",
    ),
    "source: olmo-core nan": (
        "[rank3]: RuntimeError: Infinite loss encountered",
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: Infinite loss encountered",
    ),
    "source: detectron": (
        "FloatingPointError: Loss became infinite or NaN at iteration=42!",
        "CRASHED",
        "the loss is not a number",
        "FloatingPointError: Loss became infinite",
    ),
    "source: anomaly": (
        "RuntimeError: Function 'LogSoftmaxBackward0' returned nan values in its 0th output.",
        "CRASHED",
        "the loss is not a number",
        "RuntimeError: Function 'LogSoftmaxBackwa",
    ),
    "losses that are not finite, logged as 0": (
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.54}\n{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.55}",
        "CRASHED",
        "the loss is not a number",
        "{'loss': 0.0, 'grad_norm': nan, 'learning",
    ),
    "losses that are not finite, logged as 0 in text": (
        "{'loss': '0', 'grad_norm': 'nan', 'learning_rate': '5e-05', 'epoch': '0.54'}",
        "CRASHED",
        "the loss is not a number",
        "{'loss': '0', 'grad_norm': 'nan', 'learn",
    ),
}
