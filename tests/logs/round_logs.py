"""Logs of working trainers from public threads and repositories, in rounds."""

from __future__ import annotations

from typing import Final

from tests.logs.eighth_round_logs import EIGHTH_ROUND_LOGS
from tests.logs.fifth_round_logs import FIFTH_ROUND_LOGS
from tests.logs.first_round_logs import FIRST_ROUND_LOGS
from tests.logs.fourth_round_logs import FOURTH_ROUND_LOGS
from tests.logs.second_round_logs import SECOND_ROUND_LOGS
from tests.logs.seventh_round_logs import SEVENTH_ROUND_LOGS
from tests.logs.sixth_round_logs import SIXTH_ROUND_LOGS
from tests.logs.third_round_logs import THIRD_ROUND_LOGS
from tests.logs.thread_bar_logs import GoodLog

ROUND_LOGS: Final[dict[str, GoodLog]] = {
    **FIRST_ROUND_LOGS,
    **SECOND_ROUND_LOGS,
    **THIRD_ROUND_LOGS,
    **FOURTH_ROUND_LOGS,
    **FIFTH_ROUND_LOGS,
    **SIXTH_ROUND_LOGS,
    **SEVENTH_ROUND_LOGS,
    **EIGHTH_ROUND_LOGS,
}
