"""Classify why a job failed, with the log line as evidence.

A word such as "error" is no evidence: it occurs in warnings and names of options. Only the patterns below count, and
the last line of a Python traceback. Of several, the cause is reported and not its consequences: when one rank dies, the
launcher ends the others, their connections break, and each prints its own traceback.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tuner.core.outcomes import Failure, Outcome
from tuner.logs.exception_meanings import FOLLOWED, LOST_PEER, MEANINGS, WAITED
from tuner.logs.signature import BARE, CAUSE, ENDED, LOST, NCCL, NOT_A_NUMBER, REPORT, SIGNAL, Signature
from tuner.logs.signatures import NOT_TOPOLOGICAL, REMEDIES, SIGNATURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A log line that explains a failure."""

    failure: Failure
    meaning: str
    """The failure in plain English."""
    line: int
    weight: int = CAUSE
    passing: bool = False
    """Whether a job may survive it: the exception may have been caught."""
    instead_of: int = 0
    """Line of an exception that it explains better; 0 for none."""

    @property
    def remedy(self) -> str:
        """What to do about the failure; empty if that depends on the line."""
        return REMEDIES.get(self.meaning, "")

    @property
    def is_cause(self) -> bool:
        """Whether the line explains the failure instead of only reporting it."""
        return self.weight <= CAUSE


_WARNS: Final = re.compile(
    r"\bwarn(?:ing)?\b|UserWarning|\b(?-i:DEBUG)\b"
    r"|\b(?:caught(?! signal)|avoid(?! data incons)|prevent|recovered from|retry)\b",
    re.IGNORECASE,
)
"""Words before a match in lines that only warn, advise or report what the program has caught."""
_CERTAIN: Final = re.compile(
    r"Watchdog caught|(?:NCCL|\[[0-9]{1,3}\] \w{1,40}\.c[cu]:[0-9]{1,5}) (?:WARN|warning\(error\))"
    r"|Did not get \w+ heartbeat|^\s*Warning {2,}[A-Z]\w* {2,}|Received [0-9]{1,2} death signal"
    r"|Ran out of memory with exception|\tDEBUG\tevents\t|\bDEBUG events\b"
)
"""Failures that programs print as warnings, and events of Kubernetes."""

_BELOW_ERROR: Final = re.compile(
    r"^(?:\[[\w-]{1,20}\]:)?\s{0,4}\[?[WI](?:[0-9]{3,4} [0-9]{2}:[0-9]{2}:| \w{1,60}\.\w{2,3}:[0-9])"
)
"""Levels of PyTorch's and glog's lines about operations that may be retried, such as a connection."""

_TRACEBACK: Final = "Traceback (most recent call last):"
_GLUED: Final = re.compile(r"\[[0-9:]{4,12}<[^\]]{1,400}\]|\^C")
"""Text before a traceback on its line that is missing in its other lines: a bar, the user's signal."""
_DEBUG: Final = re.compile(r"\bDEBUG\b")
"""The level at which programs log recoverable errors."""
_RICH_TRACEBACK: Final = re.compile(r"╭─+ (Traceback \(most recent call last\)) ─+╮")
_RAISED: Final = re.compile(r"((?:[A-Za-z_]\w*\.)*)([A-Za-z_]\w*)(?::\s|:?\s*$)")
_NAMED: Final = re.compile(r"(?:Error|Exception|Interrupt|Exit|Failure|Timeout|Expired|Abort|Warning)$")
_ASSERTION: Final = re.compile(r"(?:^|[:\]]\s*)AssertionError(?::|\s*$|(?=  File \"))")
_FRAME_LINE: Final = re.compile(r'^([^"]{0,160}?) {2}File "[^"]{1,400}", line [0-9]+, in \S')
"""A line of a traceback whose beginning may be missing."""
_GOES_ON: Final = re.compile(
    r"\b(?:(?-i:INFO|DEBUG)|falling back|falls? back|fallback|ignor(?:ed|ing)|skip(?:ped|ping)?|retrying"
    r"|disabl(?:ed|ing)|continu(?:e|ing)|optional)\b",
    re.IGNORECASE,
)
_ENDINGS: Final = ("Invalid", "NotFound", "Failed", "Timeout", "Expired", "Refused", "Conflict", "ProcessPool")
"""Endings of the names of exceptions in modules, besides Error and Exception."""
_BARE: Final = re.compile(
    r"^(?:> ?)?(?:\([^()]{1,100}\) |\S{1,60}: |\s{1,20}\"message\": \")?"
    r"((?:(?:\w{1,60}\.){0,9}(?:Exception|_?[A-Z]\w{0,60}(?:Error|Exception))|socket\.gaierror"
    r"|(?:\w{1,60}\.){1,9}(?:(?:[Ee]x\w{1,60}|_?errors?)\.[A-Z]\w{1,60}"
    rf"|[A-Z]\w{{0,60}}(?:{'|'.join(_ENDINGS)}))): \S.*|(?:\w{{1,60}}\.){{1,9}}[A-Z]\w{{0,60}}(?:Error|Exception):\s*)$"
)
"""An exception at the beginning of a line."""
_LOGGED: Final = re.compile(
    r"\b(?:CRITICAL|FATAL|Uncaught|Unhandled|ERROR\b[^|]{0,120}?\b(?:[Ff]ailed|[Ee]xception|[Cc]rashed|[Aa]borted))\b"
    r"[^|]{0,120}?[ :]((?:\w{1,60}\.){0,9}[A-Z]\w{0,60}(?:Error|Exception): \S.*)$"
)
"""An exception that a program logs as it ends, without its traceback."""
_FRAME: Final = "│╭╰├┃"
"""First characters of the lines that rich draws around a traceback."""
_LOOKUP: Final = re.compile(r"^(?:KeyError: \S{1,200}|StopIteration|(?:_?queue\.)?Empty)$")
"""An exception whose handler explains better what was missing."""
_DURING: Final = "During handling of the above exception"
_FROM: Final = "The above exception was the direct cause"
_ANYTHING: Final = re.compile("")
_OF_OTHERS: Final = re.compile(r"\W*$|srun: |.*\b(?:iter(?:ation)?|step|epoch)\b.{0,20}?\d", re.IGNORECASE)
"""A line behind an exception that is not of its message: a rule, Slurm's, or progress."""
_MAX_LINES_TO_HANDLER: Final = 3
_UNSAID: Final = re.compile(
    r"^(?:\w{1,60}\.){0,9}(?:\w{1,60}(?:Error|Exception):|BackendCompilerFailed: backend='\w{1,60}' raised:)$"
)
_MAX_LINES_TO_MESSAGE: Final = 2
_MAX_TRACEBACK_LINES: Final = 500
_MAX_EVIDENCE_CHARS: Final = 500
_DIGITS: Final = re.compile(r"[0-9]+")
_FAILED_OR_TIMED_OUT: Final = "NCCL operations have failed or timed out"
_ABORTED: Final = "communicator was aborted"
"""Errors that also follow a timeout of NCCL."""


@dataclass(slots=True)
class _Traceback:
    """A traceback while it is read; its lines share a prefix that names the rank."""

    prefix: re.Pattern[str]
    line: int
    read: int = 0
    headless: bool = False
    """Whether its first line is missing, so that only what follows its frames directly can belong to it."""
    ignored: bool = False
    """Whether Python continues after it."""


FAILURE_WORDS: Final = tuple(
    dict.fromkeys(
        (
            *(word for signature in SIGNATURES for word in signature.words),
            *(f"{ending}: " for ending in _ENDINGS),
            *(
                "Traceback (most",
                "AssertionError",
                "Exception ignored ",
                '  File "',
                "Error: ",
                "Exception: ",
                "exceptions.",
                "errors.",
                "exc.",
                "gaierror: ",
                _DURING,
            ),
        )
    )
)
"""Each line that shows a failure contains one of these words, unless it belongs to a traceback."""


class Failures:
    """Finds failures in consecutive lines."""

    def __init__(self) -> None:
        self._open: list[_Traceback] = []
        self._ignored = False
        self._signatures: Sequence[Signature] = SIGNATURES
        self._unsaid = 0
        """Line of the last exception whose message begins on the next line."""
        self._lookup = 0
        """Line of the last exception of a lookup."""
        self._handled = 0
        """Line of the exception that is being handled."""
        self._prefix = _ANYTHING
        """The prefix of the last traceback."""
        self._unfinished: tuple[Sighting, re.Pattern[str]] | None = None
        """The exception of the last line, if that ends in a colon, and the prefix of its traceback."""

    @property
    def awaits_lines(self) -> bool:
        """Whether the next line counts even without a keyword."""
        return bool(self._open) or self._ignored or self._unfinished is not None

    def expect(self, words: frozenset[str]) -> None:
        """Restrict the signatures to those that can match lines with only these keywords."""
        self._signatures = [signature for signature in SIGNATURES if not words.isdisjoint(signature.words)]

    def continued(self, text: str) -> Sighting | None:
        """Return the exception of the last line with this one, if that line ends in a colon and this one goes on."""
        last, self._unfinished = self._unfinished, None
        if last is None or any(words in text for words in (_TRACEBACK, _DURING, _FROM)):
            return None
        seen, prefix = last
        if not (begun := prefix.match(text)):
            return None
        if not (rest := text[begun.end() :].strip()):
            self._unfinished = last
            return None
        if _OF_OTHERS.match(rest) or _BARE.match(rest) or _signed(0, rest):
            return None
        return replace(seen, failure=replace(seen.failure, evidence=_cut(f"{seen.failure.evidence} {rest}")))

    def see(self, number: int, text: str) -> Sighting | None:
        """Return the failure that a line shows, if any."""
        part_of_one, raised = (
            self._in_traceback(number, text)
            if self._open or "Traceback (most" in text or '  File "' in text
            else (False, None)
        )
        self._ignored = "Exception ignored " in text
        if raised:
            raised = self._kept(replace(raised, instead_of=self._handled if raised.is_cause else 0), self._prefix)
            self._unsaid = number if _UNSAID.match(raised.failure.evidence) else 0
            self._lookup, self._handled = (number if _LOOKUP.match(raised.failure.evidence) else 0), 0
        if part_of_one:  # quoted source code proves nothing
            before, opened, _ = text.partition(_TRACEBACK)
            return raised or (_signed(number, before, self._signatures) if opened and not before.isspace() else None)
        if _DURING in text:
            self._handled = self._lookup if number - self._lookup <= _MAX_LINES_TO_HANDLER else 0
        if signed := _signed(number, text, self._signatures):
            is_message = signed.is_cause and 0 < number - self._unsaid <= _MAX_LINES_TO_MESSAGE
            return replace(signed, instead_of=self._unsaid) if is_message else signed
        if "AssertionError" in text and _ASSERTION.search(text):
            return self._kept(_raised(number, text.strip()))
        if found := _BARE.match(text) or (("Error: " in text or "Exception: " in text) and _LOGGED.search(text)):
            if number - 1 == self._unsaid > 0:
                return self._kept(replace(_raised(number, found[1]), instead_of=self._unsaid))
            bare = _bare(number, text, found[1])
            return bare and self._kept(bare)
        return None

    def _kept(self, raised: Sighting, prefix: re.Pattern[str] = _ANYTHING) -> Sighting:
        """Return an exception; keep it if its message goes on in the next line, which begins with the same prefix."""
        if raised.failure.evidence.endswith(":"):
            self._unfinished = (raised, prefix)
        return raised

    def end(self) -> list[Sighting]:
        """Return the tracebacks that are incomplete at the end of the log."""
        meaning = "an exception ended a rank"
        return [
            _sighting(one.line, _TRACEBACK, Outcome.CRASHED, meaning, ENDED, passing=True)
            for one in self._open
            if not (one.headless or one.ignored)
        ]

    def _in_traceback(self, number: int, text: str) -> tuple[bool, Sighting | None]:
        """Return whether the line is part of a traceback, and its failure if it is the last line."""
        rich = _RICH_TRACEBACK.search(text)
        prefix, found = (text[: rich.start()], True) if rich else (text.partition(_TRACEBACK)[0], _TRACEBACK in text)
        if found:
            prefix = _GLUED.split(prefix)[-1]
            ignored = self._ignored or _DEBUG.search(prefix) is not None
            self._open.append(_Traceback(prefix=_like(prefix), line=number, ignored=ignored))
            return True, None
        self._open = [one for one in self._open if one.read < _MAX_TRACEBACK_LINES]
        part_of_one = False
        for one in self._open:
            one.read += 1
            begun = one.prefix.match(text)
            rest = text[begun.end() :] if begun else ""
            if not rest:
                continue
            if rest[0].isspace() or rest[0] in _FRAME:
                part_of_one = True
            elif _is_raised(rest):
                self._open.remove(one)
                self._prefix = one.prefix
                return True, None if one.ignored else _raised(number, rest.strip())
            elif one.headless:
                one.read = _MAX_TRACEBACK_LINES
        if not part_of_one and (frame := _FRAME_LINE.match(text)):
            self._open.append(_Traceback(prefix=_like(frame[1]), line=number, headless=True))
            return True, None
        return part_of_one, None


def _is_raised(text: str) -> bool:
    """Whether a line names an exception, by its suffix or its module."""
    found = _RAISED.match(text)
    return found is not None and bool(_NAMED.search(found[2]) or (found[1] and found[2][0].isupper()))


def cause(sightings: Sequence[Sighting]) -> Sighting | None:
    """Return the failure of a job: the first of the sightings closest to the cause."""
    explained = {sighting.instead_of for sighting in sightings}
    seen = sorted(
        (sighting for sighting in sightings if sighting.line not in explained),
        key=lambda sighting: (sighting.weight, sighting.line),
    )
    if seen and _FAILED_OR_TIMED_OUT in seen[0].failure.evidence:
        errors = (one for one in seen if one.meaning == NCCL and _ABORTED not in one.failure.evidence)
        return next(errors, seen[0])
    if seen and seen[0].failure.kind == Outcome.HUNG.value:  # of ranks that wait for one that died or whose NCCL failed
        ends = (one for one in seen if one.weight == SIGNAL or (one.meaning == NCCL and one.weight <= LOST))
        return next((one for one in ends if one.line < seen[0].line), seen[0])
    return seen[0] if seen else None


def not_a_number(number: int, text: str) -> Sighting:
    """Return the failure of a NaN loss."""
    return _sighting(number, text, Outcome.CRASHED, NOT_A_NUMBER, REPORT)


def _signed(number: int, text: str, signatures: Iterable[Signature] = SIGNATURES) -> Sighting | None:
    for signature in signatures:
        if found := signature.search(text):
            if _WARNS.search(text, 0, found.start()) and not _CERTAIN.search(text):
                return None
            return _sighting(
                number,
                text,
                signature.outcome,
                signature.meaning,
                signature.weight,
                passing=signature.passing or signature.meaning in NOT_TOPOLOGICAL or bool(_BELOW_ERROR.match(text)),
            )
    return None


def _raised(number: int, evidence: str) -> Sighting:
    """Return the failure of a traceback's last line, or of an assertion."""
    if signed := _signed(number, evidence):
        return signed
    if evidence.rstrip(": ") == "KeyboardInterrupt":
        return _sighting(number, evidence, Outcome.CANCELLED, "the job was cancelled", REPORT)
    if FOLLOWED.search(evidence):
        return _sighting(number, evidence, Outcome.CRASHED, "a rank failed", REPORT)
    if WAITED.search(evidence):
        return _sighting(number, evidence, Outcome.HUNG, "waiting for another process timed out")
    meaning = next((meaning for pattern, meaning in MEANINGS if pattern.search(evidence)), "an exception ended a rank")
    weight = LOST if meaning == NCCL or LOST_PEER.search(evidence) else CAUSE
    return _sighting(number, evidence, Outcome.CRASHED, meaning, weight, passing=True)


def _bare(number: int, text: str, evidence: str) -> Sighting | None:
    """Return the failure of an exception without a traceback, unless the line is a warning or describes a recovery."""
    if _WARNS.search(text) or _GOES_ON.search(text):
        return None
    seen = _raised(number, evidence)
    return replace(seen, weight=max(seen.weight, BARE), passing=True)


def _sighting(
    number: int, text: str, kind: Outcome, meaning: str, weight: int = CAUSE, *, passing: bool = False
) -> Sighting:
    failure = Failure(kind=kind.value, evidence=_cut(text))
    return Sighting(failure=failure, meaning=meaning, line=number, weight=weight, passing=passing)


def _cut(text: str) -> str:
    """Return the beginning of a text, with single blanks."""
    return " ".join(text.split())[:_MAX_EVIDENCE_CHARS]


def _like(prefix: str) -> re.Pattern[str]:
    """Return a pattern for a prefix with other numbers, such as times, possibly without trailing zeros."""
    return _pattern(_DIGITS.sub("0", prefix))


@lru_cache(256)
def _pattern(folded: str) -> re.Pattern[str]:
    return re.compile(re.escape(folded).replace("0", "[0-9]+"))
