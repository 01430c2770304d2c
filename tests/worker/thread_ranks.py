"""Tensor parallel ranks as threads of this process, with collectives that exchange tensors at a barrier."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.worker.test_worker_arithmetic import torch
from tuner.worker import parallel, vocabulary

HERE = threading.local()
"""The rank of each thread."""


class Group:
    """A process group of threads."""

    def __init__(self, ranks: list[int]) -> None:
        self.ranks = ranks
        self._barrier = threading.Barrier(len(ranks), timeout=20)
        self._slots: list[Any] = [None] * len(ranks)

    @property
    def index(self) -> int:
        """Return the index of this thread's rank."""
        return self.ranks.index(HERE.rank)

    def exchange(self, tensor: Any) -> list[Any]:
        """Return the tensors of all ranks."""
        self._slots[self.index] = tensor.clone()
        self._barrier.wait()
        found = list(self._slots)
        self._barrier.wait()
        return found

    def abort(self) -> None:
        """Release the ranks that wait for a failed one."""
        self._barrier.abort()


class _Done:
    def wait(self) -> None:
        """Return immediately."""


def _all_reduce(tensor: Any, op: Any = None, group: Any = None, async_op: bool = False) -> _Done | None:
    found = torch.stack(group.exchange(tensor))
    tensor.copy_(found.amax(0) if op == torch.distributed.ReduceOp.MAX else found.sum(0))
    return _Done() if async_op else None


def _gather(whole: Any, shard: Any, *, group: Any, async_op: bool) -> _Done:
    assert async_op
    whole.copy_(torch.cat(group.exchange(shard)))
    return _Done()


def _scatter(shard: Any, whole: Any, *, group: Any, async_op: bool) -> _Done:
    assert async_op
    shard.copy_(torch.stack(group.exchange(whole)).sum(0).chunk(len(group.ranks))[group.index])
    return _Done()


def _all_to_all(output: Any, given: Any, received: Any = None, sent: Any = None, group: Any = None) -> None:
    ranks, here = len(group.ranks), group.index
    sent = sent or [len(given) // ranks] * ranks
    found, splits = group.exchange(given), group.exchange(torch.tensor(sent))
    parts = [rows.split(split.tolist())[here] for rows, split in zip(found, splits, strict=True)]
    assert received is None or received == [len(part) for part in parts]
    output.copy_(torch.cat(parts))


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Run a function of the rank on one thread per rank; return all results."""
    for module in (parallel, vocabulary):
        monkeypatch.setattr(module.dist, "all_reduce", _all_reduce)
    monkeypatch.setattr("tuner.worker.parallel.dist.get_world_size", lambda group: len(group.ranks))
    monkeypatch.setattr("tuner.worker.parallel.dist.get_rank", lambda group: group.index)
    monkeypatch.setattr("tuner.worker.parallel.dist.all_to_all_single", _all_to_all)
    monkeypatch.setattr(parallel, "_gather", _gather)
    monkeypatch.setattr(parallel, "_scatter", _scatter)

    def run(function: Callable[[int], Any], ranks: int, groups: list[Group]) -> list[Any]:
        answers: list[Any] = [None] * ranks
        failures: list[BaseException] = []

        def work(rank: int) -> None:
            HERE.rank = rank
            try:
                answers[rank] = function(rank)
            except BaseException as error:
                failures.append(error)
                for group in groups:
                    group.abort()

        started = [threading.Thread(target=work, args=(rank,)) for rank in range(ranks)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        if failures:
            raise failures[0]
        return answers

    return run
