"""Lines of blocks, keys found by the shape of a line, and patterns of experts."""

from __future__ import annotations

from tests.logs.test_logs_arithmetic import PRINTED
from tuner.logs.lines import visible_blocks
from tuner.logs.records import _fields, _places
from tuner.logs.workload import described


def test_the_keys_of_a_line_are_located_by_its_shape() -> None:
    """A key maps to its part of the printed line, spaces included; a line that repeats a key has none."""
    shape = b" iteration / | LM loss: E+ | other: | TFLOPs :  | grad norm: . | mem usages: ."
    places = ((1, " LM loss: ", "lm loss"), (3, " TFLOPs : ", "tflops"), (4, " grad norm: ", "grad norm"))
    assert _places(shape) == places
    assert _places(shape + b" | lm loss: . |") == ()
    assert _fields(" lm loss: 1.5 | lm loss: 2.5 |") == {"lm loss": "1.5"}
    assert _fields(" grad norm: 0.25 | mem usages: 0.5") == {"grad norm": "0.25"}
    assert _fields(" grad norm: 7| mem usages:  0.5 |") == {"grad norm": "7", "mem usages": "0.5"}


def test_blank_lines_of_a_block_are_left_out() -> None:
    ((block, whole),) = visible_blocks(["a\n", "\n", "  \n", "b"])
    assert (block, whole) == ([(1, "a"), (4, "b")], "a\n\n  \nb")


def test_a_pattern_without_experts_is_unknown() -> None:
    mixture = {"num_experts": "8", "moe_router_topk": "2", "moe_ffn_hidden_size": "16", "num_layers": "3"}
    assert "in layers of no known pattern" in described({**PRINTED, **mixture, "moe_layer_freq": "[0, 0, 0]"}, 8).lacks
