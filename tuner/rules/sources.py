"""Where rules are known from, by the names that their entries repeat."""

from typing import Final

MEGATRON: Final = "Megatron-LM, megatron/"
MEGATRON_DS: Final = "Megatron-DeepSpeed, megatron/"
BLOOM: Final = "BLOOM chronicles-prequel, "
