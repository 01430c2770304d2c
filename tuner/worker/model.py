"""The model as a list of layers, split into pipeline stages or whole."""

from __future__ import annotations

from typing import Any, Final

import deepspeed
from deepspeed.runtime.pipe.module import LayerSpec, PipelineModule, TiedLayerSpec
from torch import Tensor, nn

from tuner.core.domain import Partition, Topology, Workload
from tuner.core.errors import InputError
from tuner.core.model import Model
from tuner.worker.block import Block, recomputed
from tuner.worker.linear import Beside, Maker, Recipe, mark
from tuner.worker.mesh import Mesh
from tuner.worker.vocabulary import FinalNorm, Head, Loss, Positions, Words, words_as_head

PARTITIONS: Final[dict[Partition, str]] = {"layers": "type:^Block$", "embedding": "type:^(Block|Words|Head)$"}
"""DeepSpeed's PipelineModule spreads layers whose class name matches the pattern evenly over the stages."""


def build(
    workload: Workload, topology: Topology, mesh: Mesh, *, seed: int, ds_config: dict[str, Any], groups: Any
) -> nn.Module:
    """Return this rank's part of the model, with each parameter created as its shard.

    `groups` is the grid of a job without a pipeline; ZeRO 3 shards the parameters over its data parallel ranks.
    """
    recipe = Recipe(
        workload=workload,
        recompute_attention=topology.recompute == "selective",
        microbatches=topology.microbatches(workload.global_batch),
    )
    maker = Maker(mesh=mesh, seed=seed)
    if topology.pp > 1:
        return _stages(recipe, topology, maker)
    if topology.zero < 3:
        return Whole(recipe, maker, recompute_layers=topology.recompute == "full")
    # ZeRO 3 shards each module on creation, so that at most one matrix is ever whole.
    # It needs the groups twice: for the shards, and for the batch size of its config.
    replicas = groups.get_data_parallel_group()
    # Its argument `dtype` is ignored on hosts without fp16, which then get bf16; the precision of its config is not.
    with deepspeed.zero.Init(data_parallel_group=replicas, mpu=groups, config_dict_or_path=ds_config):
        return Whole(recipe, maker, recompute_layers=topology.recompute == "full")


def _specs(recipe: Recipe, maker: Maker) -> list[LayerSpec]:
    """Return the specs of the layers in the order of the forward pass."""
    model = recipe.workload.model
    tied = model.tied_embeddings
    words = (Words, recipe, maker.part("words"))
    specs = [
        TiedLayerSpec("words", *words, tied_weight_attr="weight") if tied else LayerSpec(*words),
        LayerSpec(Positions, recipe, maker.part("positions")),
        *(LayerSpec(Block, recipe, maker.part(f"layer{number}"), number) for number in range(model.layers)),
    ]
    if model.final_norm:
        specs.append(LayerSpec(FinalNorm, recipe, maker.part("final_norm")))
    specs.append(
        TiedLayerSpec("words", *words, forward_fn=words_as_head, tied_weight_attr="weight")
        if tied
        else LayerSpec(Head, recipe, maker.part("head"))
    )
    return specs


def _stages(recipe: Recipe, topology: Topology, maker: Maker) -> PipelineModule:
    """Return this rank's pipeline stage."""
    module = PipelineModule(
        layers=_specs(recipe, maker),
        topology=maker.mesh.axes,
        loss_fn=Loss(recipe.workload, maker.mesh),
        partition_method=PARTITIONS[topology.partition],
        checkpointable_layers=["Block"],
    )
    expected = stage_bounds(recipe.workload.model, topology)
    if module.parts != expected:
        raise InputError(f"DeepSpeed split the layers at {module.parts}, but {topology.key} needs {expected}.")
    for parameter in module.parameters():
        # Tied embeddings count on the first stage; their copy on the last stage does not.
        if parameter.ds_pipe_replicated:
            mark(parameter, counts=False)
    module.add_module("beside", Beside(recipe.workload.model, maker.mesh))
    return module


def stage_bounds(model: Model, topology: Topology) -> list[int]:
    """Return the index in the list of layers at which each stage starts, and the length of the list.

    The list is words, positions, layers, final norm, head. Entries that do not count as layers stay with a neighbour.
    """
    whole = model.layers + 3 + model.final_norm
    share, counted = divmod(topology.split_units(model.layers), topology.pp)
    if counted:
        raise InputError(
            f"{model.layers} layers cannot be divided evenly over {topology.pp} stages by {topology.partition}."
        )
    first = 2 - (topology.partition == "embedding")
    return [0, *(first + share * stage for stage in range(1, topology.pp)), whole]


class Whole(nn.Module):
    """The whole model for an engine without a pipeline; maps tokens and labels to the loss."""

    def __init__(self, recipe: Recipe, maker: Maker, *, recompute_layers: bool) -> None:
        super().__init__()
        model = recipe.workload.model
        self.recompute_layers = recompute_layers
        self.words = Words(recipe, maker.part("words"))
        self.positions = Positions(recipe, maker.part("positions"))
        self.layers = nn.ModuleList(
            Block(recipe, maker.part(f"layer{number}"), number) for number in range(model.layers)
        )
        self.final_norm = FinalNorm(recipe, maker.part("final_norm")) if model.final_norm else None
        self.head = None if model.tied_embeddings else Head(recipe, maker.part("head"))
        self.beside = Beside(model, maker.mesh)
        self.loss = Loss(recipe.workload, maker.mesh)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of one microbatch."""
        stream = self.positions(self.words(tokens))
        for layer in self.layers:
            stream = recomputed(layer, stream) if self.recompute_layers else layer(stream)
        if self.final_norm is not None:
            stream = self.final_norm(stream)
        logits = words_as_head(self.words, stream) if self.head is None else self.head(stream)
        return self.loss(logits, labels)
