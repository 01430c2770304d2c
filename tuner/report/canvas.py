"""Matplotlib for tuner's plots: only this module imports it, and no setting of the user applies while they are drawn.

A user's matplotlibrc may ask for LaTeX, and `MPLBACKEND` for a backend that does not exist; with some of these settings
matplotlib cannot be imported. It is imported without them, and valid ones are then applied for the user's own plots.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

_VARIABLES: Final = {"MPLBACKEND": "agg", "MATPLOTLIBRC": os.devnull}


@contextmanager
def _without_user_settings() -> Iterator[None]:
    former = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(_VARIABLES)
    try:
        yield
    finally:
        for name, value in former.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


_FIRST: Final = "matplotlib" not in sys.modules

with _without_user_settings():
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
    from matplotlib.transforms import ScaledTranslation

if _FIRST:
    with suppress(Exception):  # whatever a settings file of the user contains
        mpl.rcParams.update(mpl.rc_params())
    with suppress(ValueError):
        mpl.rcParams.update({"backend": os.environ["MPLBACKEND"]} if "MPLBACKEND" in os.environ else {})

__all__ = [
    "Axes",
    "Axis",
    "ConstrainedLayoutEngine",
    "Figure",
    "FigureCanvasAgg",
    "FigureCanvasSVG",
    "FixedLocator",
    "FuncFormatter",
    "LogLocator",
    "MaxNLocator",
    "NullLocator",
    "Rectangle",
    "ScaledTranslation",
    "drawing",
]


@contextmanager
def drawing(settings: Any) -> Iterator[None]:
    """Draw and save figures with matplotlib's defaults and these settings."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        yield
