"""Parse the lines of frameworks that print one line for each iteration.

- `tuner.step`, tuner's helper for trainers that print nothing: `tuner step 2 | seconds 0.512345 | loss 5.1 |`.
- Megatron-Bridge, `train_utils.py`, above Megatron's line and without its number: `Step Time : 6.56s GPU utilization:
  919.9MODEL_TFLOP/s/GPU`.
- nanotron, `trainer.py`, `train_step_logs`: `iteration: 2 / 15 | ... | elapsed_time_per_iteration_ms: 1.23K | ...`.
- torchtitan, `components/metrics.py`: `step:  2  loss:  9.1234  ...  memory: 45.67GiB(57.70%)  tps: 3,456  ...`, once
  `wps`: tokens per second of a GPU.
- NeMo 2, `progress_printer.py`: `Training epoch 0, iteration 1/249 | ... | train_step_timing in s: 2.505 | ...`.
- nanoGPT, `train.py`: `iter 2: loss 9.12, time 812.30ms, mfu 45.00%`; build-nanogpt, nanochat, llm.c and llama2.c are
  alike.
  modded-nanogpt prints the total time: `step:2/1750 train_time:302ms step_avg:151.03ms`.
- torchtune, `StdoutLogger`: `Step 2 | loss:1.2 lr:2e-05 tokens_per_second_per_gpu:1234`.
- MaxText, `metric_logger.py`: `completed step: 2, seconds: 5.658, TFLOP/s/device: 135.158, ..., loss: 11.689`.
- MMEngine and XTuner, `log_processor.py`: `Iter(train) [ 20/720]  lr: ...  time: 2.6851  data_time: 0.0077  memory:
  12762  loss: 2.6900`, or `Epoch(train) [1][20/720]`: the mean of the last iterations, and MiB.
- MetricLogger of torchvision's references, DeiT and MAE: `Epoch: [0]  [  20/1251]  eta: 1:13:30  lr: 1e-05  loss: 2.70
  (2.70)  time: 3.1725  data: 0.0003  max mem: 58204`: the mean of the last 20.
- OpenCLIP, `train.py`: `Train Epoch: 0 [ 6464/109468 (3%)] ... Data (t): 0.158 Batch (t): 0.559, 36.1/s LR: ...`.
- fairseq, `progress_bar.py`: `| train_inner | epoch 003:  185 / 282 loss=3.153, ..., ups=2.18, ..., num_updates=749,
  ...`, or the same as JSON; `ups` are updates per second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tuner.core.errors import InputError
from tuner.core.quantity import GIB, SCALES
from tuner.core.text import listed, shown
from tuner.logs.lines import label, stamp_of
from tuner.logs.records import LOSS, NUMBER, Iteration, LogRecord, PeakMemory, Source, digit_of, figure_of, loss_of

_GROUPS: Final = ("iteration", "seconds", "ms", "tokens_per_sec", "loss", "memory")
"""Named groups of a step pattern."""
_SEPARATED: Final = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
"""A number with thousands separators."""
_MAX_PATTERN_TEXT: Final = 4096
"""Characters of a line to which a user's pattern is applied, as it may take quadratic time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineFormat:
    """The format of one framework's lines, which have all figures of an iteration."""

    source: Source
    trigger: str
    """Words that each of these lines contains, which is faster to search than the pattern."""
    pattern: re.Pattern[str]
    """With groups among those of `_iteration`."""


def _format(source: Source, trigger: str, pattern: str) -> _LineFormat:
    return _LineFormat(source=source, trigger=trigger, pattern=re.compile(pattern))


_FORMATS: Final = (
    _format(
        "tuner.step",
        "tuner step ",
        rf"^tuner step (?P<iteration>[0-9]{{1,12}}) \| seconds (?P<seconds>{NUMBER}) \|"
        rf"(?: loss (?P<loss>{LOSS}) \|)?",
    ),
    _format(
        "nanotron",
        "time_per_iteration_ms: ",
        r"iteration: (?P<iteration>[0-9]{1,12}) / [0-9]{1,12} \|.{0,400}?"
        r"time_per_iteration_ms: (?P<human_ms>[0-9.]{1,12}[KMBT]?) \|"
        r"(?:.{0,400}?\bglobal_batch_size: (?P<batch>[0-9.]{1,12}[KMBT]?) \|)?"
        rf"(?:.{{0,400}}?\blm_loss: (?P<loss>{LOSS}) \|)?(?:.{{0,400}}?model_tflops_per_gpu: (?P<tflops>{NUMBER}) \|)?",
    ),
    _format(
        "torchtitan",
        "  loss: ",
        rf"\bstep: {{1,12}}(?P<iteration>[0-9]{{1,12}})  loss: {{1,8}}(?P<loss>{LOSS})  .{{0,80}}?"
        rf"memory: {{1,8}}(?P<gib>{NUMBER})GiB\([^)]{{0,12}}\)  (?:tps|wps): (?P<gpu_tokens>[0-9,]{{1,15}})(?=  |\s*$)"
        rf"(?:  tflops: (?P<tflops>[0-9,.]{{1,12}})(?=  ))?",
    ),
    _format(
        "torchtitan",
        "  iter: ",
        rf"\bstep: {{1,12}}(?P<iteration>[0-9]{{1,12}})  loss: {{1,8}}(?P<loss>{LOSS})  "
        rf"iter: {{1,8}}(?P<seconds>{NUMBER})  data: ",
    ),
    _format(
        "step time",
        "Step Time : ",
        rf"^Step Time : (?P<seconds>{NUMBER})s GPU utilization: (?P<tflops>{NUMBER})MODEL_TFLOP/s/GPU\b",
    ),
    _format(
        "nemo",
        "train_step_timing in s: ",
        r"\biteration (?P<iteration>[0-9]{1,12})/[0-9]{1,12} \|"
        r"(?:.{0,200}?global_batch_size: (?P<batch>[0-9]{1,9}) \|)?"
        rf"(?:.{{0,400}}?reduced_train_loss: (?P<loss>{LOSS}) \|)?.{{0,400}}?"
        rf"train_step_timing in s: (?P<seconds>{NUMBER})(?= \||\s*$)",
    ),
    _format(
        "nanogpt",
        ", time ",
        rf"\biter (?P<iteration>[0-9]{{1,12}}): loss (?P<loss>{LOSS}), time (?P<ms>{NUMBER})ms\b",
    ),
    _format(
        "nanogpt",
        "dt: ",
        rf"\bstep {{1,8}}(?P<iteration>[0-9]{{1,12}})(?:/[0-9]{{1,12}})?[ |(].{{0,200}}?"
        rf"loss: (?P<loss>{LOSS})\b.{{0,200}}?"
        rf"\bdt: (?P<ms>{NUMBER}) ?ms\b",
    ),
    _format(
        "nanogpt",
        "tok/s",
        rf"\bstep {{1,8}}(?P<iteration>[0-9]{{1,12}})/[0-9]{{1,12}} \| (?:train )?loss (?P<loss>{LOSS}) .{{0,200}}?"
        rf"\| (?P<ms>{NUMBER}) ms \|",
    ),
    _format(
        "nanogpt",
        " train_time:",
        rf"\bstep:(?P<iteration>[0-9]{{1,12}})/[0-9]{{1,12}} (?:train_loss:(?P<loss>{LOSS}) |val_loss:\S{{1,24}} )?"
        rf"train_time:(?P<total_ms>{NUMBER})ms\b",
    ),
    _format(
        "nanogpt",
        "ms | mfu ",
        rf"^(?P<iteration>[0-9]{{1,12}}) \| loss (?P<loss>{LOSS}) \| lr \S{{1,24}} \| (?P<ms>{NUMBER})ms \| mfu ",
    ),
    _format(
        "torchtune",
        "tokens_per_second_per_gpu:",
        rf"\bStep (?P<iteration>[0-9]{{1,12}}) \| loss:(?P<loss>{LOSS}) .{{0,400}}?"
        rf"(?:time_per_step_s:(?P<seconds>{NUMBER}) )?tokens_per_second_per_gpu:(?P<gpu_tokens>{NUMBER})\b",
    ),
    _format(
        "maxtext",
        "completed step: ",
        rf"\bcompleted step: (?P<iteration>[0-9]{{1,12}}), seconds: (?P<seconds>{NUMBER}), "
        rf"TFLOP/s(?:/device)?: (?P<tflops>{NUMBER})\b(?:.{{0,200}}?\bloss: (?P<loss>{LOSS})\b)?",
    ),
    _format(
        "metric logger",
        "  eta: ",
        r"\bEpoch: \[(?P<epoch0>[0-9]{1,9})\]  \[ {0,12}(?P<at>[0-9]{1,9})/(?P<steps>[0-9]{1,9})\]  eta: "
        rf"(?:(?:(?!Epoch: ).){{0,800}}?\bloss: (?P<loss>{LOSS})\b)?(?:(?!Epoch: ).){{0,800}}?  "
        rf"time: (?P<seconds>{NUMBER})  data: ",
    ),
    _format(
        "open clip",
        "Batch (t): ",
        rf"\bTrain Epoch: [0-9]{{1,9}} \[ {{0,12}}[0-9]{{1,12}}/[0-9]{{1,12}} \([0-9]{{1,3}}%\)\] .{{0,400}}?"
        rf"Batch \(t\): (?P<seconds>{NUMBER}),",
    ),
    _format(
        "fairseq",
        "num_updates",
        rf"^.{{0,120}}?(?:\btrain_inner \| (?:epoch [0-9]{{1,6}}: .{{0,60}}?loss=(?P<loss>{LOSS}), )?|\{{\"epoch\": )"
        rf".{{0,800}}?\bups(?:=|\": \")(?P<rate>{NUMBER})[,\"].{{0,200}}?"
        r"num_updates(?:=|\": \")(?P<iteration>[0-9]{1,12})\b",
    ),
    _format(
        "mmengine",
        "(train) ",
        r"\b(?:Iter\(train\) {1,4}\[ {0,12}(?P<iteration>[0-9]{1,12})/[0-9]{1,12}\]|"
        r"Epoch\(train\) {1,4}\[ {0,12}(?P<epoch>[0-9]{1,9})\]\[ {0,12}(?P<at>[0-9]{1,9})/(?P<steps>[0-9]{1,9})\])"
        rf".{{0,200}}?  time: (?P<seconds>{NUMBER})\b(?:.{{0,200}}?  loss: (?P<loss>{LOSS})\b)?",
    ),
)

FRAMEWORK_WORDS: Final = (
    *(known.trigger for known in _FORMATS),
    *("[step=", "[batch=", "iter time: ", "throughput/", "train/", "Train "),
    *("GiB(", "cuda_max_memory_reserved", "memory/", "memory(GiB)", "data_time: ", "max_memory_"),
)
"""Each line that this module and `blocks.py` read contains one of these words."""

_LOGGED_MEMORY: Final = re.compile(
    r"memory/(?:max_|device_)?(?:mem_)?(allocated|active|reserved|peak_allocated_mem|peak_reserved_mem) ?"
    rf"(?:\([Gg]i[Bb]\))?'?: '?({NUMBER})"
)
_SWIFT_MEMORY: Final = re.compile(rf"\bmemory\(GiB\)['\"]?: ['\"]?({NUMBER})\b")
_TITAN_MEMORY: Final = re.compile(rf"  memory: {{1,8}}({NUMBER})GiB\([0-9.]{{1,8}}%\)  (?:tps|wps): ")
_MMENGINE_MEMORY: Final = re.compile(rf"  data_time: {NUMBER}  memory: ([0-9]{{1,9}})\b")
_BYTES: Final = re.compile(r"\bmax_memory_(allocated|reserved)['\"]?(?:: |=)([0-9]{7,15})(?![\w.]| ?[KMG]i?B)")
_NANOTRON_MEMORY: Final = re.compile(r"cuda_max_memory_reserved: ([0-9.]{1,12})([KMBGT]?)(?: |\s*$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPattern:
    """The user's pattern for the lines of iterations, for trainers without a reader."""

    pattern: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> StepPattern:
        """Compile a pattern; raise if it is no regular expression or has no group for a time."""
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise InputError(f"--step-pattern {shown(text)} is not a regular expression: {error}.") from None
        names = set(pattern.groupindex)
        if unknown := sorted(names - set(_GROUPS)):
            raise InputError(f"--step-pattern: unknown group {listed(unknown)}; the groups are {listed(_GROUPS)}.")
        if not names & {"seconds", "ms", "tokens_per_sec"}:
            raise InputError(
                "--step-pattern has no group for the time; name one (?P<seconds>...), (?P<ms>...) or "
                "(?P<tokens_per_sec>...)."
            )
        return cls(pattern=pattern)

    def read(self, line: int, text: str) -> Iterator[LogRecord]:
        """Yield the iteration of a line; lines without a number are counted."""
        for found in self.pattern.finditer(text[:_MAX_PATTERN_TEXT]):
            printed = {name: value.strip().rstrip(",") for name, value in found.groupdict().items() if value}
            groups = {
                name: value.replace(",", "") if _SEPARATED.fullmatch(value) else value
                for name, value in printed.items()
            }
            iteration = _iteration(groups | {"job_tokens": groups.get("tokens_per_sec", "")}, line, text)
            if iteration.seconds or iteration.tokens_per_second:
                before = label(text, found.start()) if "iteration" in groups else ""
                yield LogRecord(
                    source="step pattern", speaker=before, iteration=iteration, counted="iteration" not in groups
                )

    def may_read(self, _kind: str) -> bool:
        """Return True, because a pattern may match any line."""
        return True

    def memory(self, text: str) -> PeakMemory | None:
        """Return the memory of a line, in GiB."""
        if "memory" not in self.pattern.groupindex or not (found := self.pattern.search(text[:_MAX_PATTERN_TEXT])):
            return None
        figure = figure_of(found["memory"])
        return PeakMemory(reserved=figure * GIB) if figure else None


def lines_of_frameworks(line: int, text: str) -> Iterator[LogRecord]:
    """Yield the iterations of frameworks that print one line per iteration."""
    for known in _FORMATS:
        if known.trigger in text:
            end = 0
            for match in known.pattern.finditer(text):
                groups = {name: value for name, value in match.groupdict().items() if value}
                iteration = _iteration(groups, line, text)
                counted = "iteration" not in groups and "at" not in groups
                before = "" if counted else label(text, match.start(), end)[-40:]
                end = match.end()
                yield LogRecord(source=known.source, speaker=before, iteration=iteration, counted=counted)


def logged_memory(text: str) -> PeakMemory | None:
    """Return the peak memory in a line of torchtitan, nanotron, NeMo, ms-swift, MMEngine, Composer or Axolotl."""
    if "GiB(" in text and (found := _TITAN_MEMORY.search(text)):
        return _peak(reserved=figure_of(found[1]))
    if "cuda_max_memory_reserved" in text and (found := _NANOTRON_MEMORY.search(text)):
        figure = figure_of(found[1])
        return _peak(reserved=figure * SCALES[found[2]] / GIB if figure else None)
    if "max_memory_" in text and (of_torch := dict(_BYTES.findall(text))):
        sizes = {name: (figure_of(figure) or 0.0) / GIB for name, figure in of_torch.items()}
        return _peak(reserved=sizes.get("reserved"), allocated=sizes.get("allocated"))
    if "memory(GiB)" in text and (found := _SWIFT_MEMORY.search(text)):
        return _peak(reserved=figure_of(found[1]))
    if "data_time: " in text and (found := _MMENGINE_MEMORY.search(text)):
        return _peak(reserved=None, allocated=int(found[1]) / 2**10)
    if "memory/" in text:
        figures = {name: figure_of(figure) for name, figure in _LOGGED_MEMORY.findall(text)}
        reserved = figures.get("reserved") or figures.get("peak_reserved_mem")
        return _peak(reserved=reserved, allocated=figures.get("allocated") or figures.get("peak_allocated_mem"))
    return None


def _peak(*, reserved: float | None, allocated: float | None = None) -> PeakMemory | None:
    """Return a peak from GiB."""
    if not reserved and not allocated:
        return None
    return PeakMemory(reserved=reserved * GIB if reserved else None, allocated=allocated * GIB if allocated else None)


def _iteration(groups: dict[str, str], line: int, text: str) -> Iteration:
    """Return the iteration of a line from the named groups of its format."""
    seconds, digit = None, 0.0
    for name, unit in (("seconds", 1.0), ("ms", 1e-3), ("human_ms", 1e-3)):
        if printed := groups.get(name):
            scale = SCALES.get(printed[-1], 1.0)
            plain = printed.rstrip("KMBGT")
            figure = figure_of(plain)
            seconds, digit = (figure * scale * unit, digit_of(plain) * scale * unit) if figure else (None, 0.0)
    batch = groups.get("batch", "")
    batch_figure = figure_of(batch.rstrip("KMBGT"))
    tokens, gpu_tokens, tflops = (
        groups.get(name, "").replace(",", "") for name in ("job_tokens", "gpu_tokens", "tflops")
    )
    rate = figure_of(tokens or gpu_tokens)
    clock, clock_digit = stamp_of(text)
    if total := figure_of(groups.get("total_ms")):
        clock, clock_digit = total * 1e-3, digit_of(groups["total_ms"]) * 1e-3
    loss = groups.get("loss", "")
    number = groups.get("iteration", "0")
    if "at" in groups:
        epochs = int(groups["epoch0"]) if "epoch0" in groups else int(groups["epoch"]) - 1
        number = str(epochs * int(groups["steps"]) + int(groups["at"]))
    derived = ""
    if steps_per_second := figure_of(groups.get("rate")):
        seconds, digit = 1 / steps_per_second, digit_of(groups["rate"]) / steps_per_second**2
        derived = "updates per second"
    return Iteration(
        number=int(number) if number.isdecimal() else 0,
        seconds=seconds,
        seconds_digit=digit,
        derived=derived,
        tflops=figure_of(tflops),
        tflops_digit=digit_of(tflops) if figure_of(tflops) else 0.0,
        # 1.02K is rounded to three digits
        global_batch=round(batch_figure) if batch_figure and batch.isdecimal() else None,
        tokens_per_second=figure_of(tokens),
        tokens_per_second_per_gpu=figure_of(gpu_tokens),
        rate_digit=digit_of(tokens or gpu_tokens) / rate if rate else 0.0,
        clock=clock,
        clock_digit=clock_digit,
        loss=loss_of(loss.replace(",", "")) if loss else None,
        line=line,
    )
