"""Constants of the search, each with its unit and its source; `RECORDS` has the record of each by name."""

from __future__ import annotations

from typing import Final

from tuner.costmodel.constants import ConstantRecords

RECORDS: Final = ConstantRecords()
_constant: Final = RECORDS.add

# surrogate
OWN_DEVIATION: Final = _constant(
    "OWN_DEVIATION",
    0.022,
    unit="standard deviation of a logarithm",
    source="the marginal likelihood of 296 rows of corpus/ in 15 groups: its logarithm is within 2 of the maximum from "
    "0.018 to 0.024",
)
"""Deviation that a topology shares with no other."""

REPEAT_DEVIATION: Final = _constant(
    "REPEAT_DEVIATION",
    0.012,
    unit="standard deviation of a logarithm",
    source="BLOOM's repeats of one topology, which differ by about 1%",
)
"""Deviation of two runs of one topology."""

ACCIDENT_DEVIATION: Final = _constant(
    "ACCIDENT_DEVIATION", 0.3, unit="standard deviation of a logarithm", source="no source"
)
"""Deviation of a run that something else than its topology slowed down."""

ACCIDENT_CHANCE: Final = _constant("ACCIDENT_CHANCE", 0.02, unit="probability", source="no source")
"""Probability that a run is slowed down by something else than its topology."""

OUTLIER_DEVIATIONS: Final = _constant("OUTLIER_DEVIATIONS", 3.0, unit="standard deviations", source="no source")
"""Deviations beyond which an observation counts as noisier than others."""

SURPRISED_MEMORY_WEIGHT: Final = _constant(
    "SURPRISED_MEMORY_WEIGHT", 10.0, unit="ratio of variances", source="no source"
)
"""Weight of the memory residual that all candidates share, beside those of kernels and of distance, once a job that
was thought safe has run out of memory."""

MEMORY_TERM_SHARE: Final = _constant(
    "MEMORY_TERM_SHARE",
    0.25,
    unit="share of a variance",
    source="on third-party models as clusters, shares from 0.25 to 0.75 find equally fast topologies; from 0.5 on, "
    "more jobs run on simulated clusters; docs/log.md, 2026-11-29",
)
"""Share of the memory residual that is a misjudged term: activations, states, logits and so on."""

MEMORY_SCALES: Final = _constant(
    "MEMORY_SCALES",
    (1.0, 2.0, 4.0),
    unit="ratio of standard deviations",
    source="no source",
)
"""Possible ratios of the error of the estimated memory to the assumed one."""

SAFE_RISK: Final = _constant("SAFE_RISK", 0.1, unit="probability", source="no source")
"""Probability of running out of memory below which a job is thought safe."""

MIN_SHARED_RISK: Final = _constant("MIN_SHARED_RISK", 0.01, unit="probability", source="no source")
"""Probability of running out of memory above which a running job counts as out of memory while others are chosen."""

MAX_FACTOR_MOVE: Final = _constant("MAX_FACTOR_MOVE", 0.1, unit="logarithm", source="no source")
"""Distance of a site factor from the point of linearisation beyond which the cost model is evaluated anew."""

UNSURE_CHANCES: Final = _constant(
    "UNSURE_CHANCES",
    {0.5: 0.4, 1.0: 0.5, 2.0: 0.1},
    unit="share, by ratio of standard deviations",
    source="half, as assumed, and twice, as a calibration averages over; not fitted",
)
"""Chance that the model's residual is so many times as far off as assumed."""

OWN_CHANCES: Final = _constant(
    "OWN_CHANCES",
    {0.3: 0.5, 1.0: 0.5},
    unit="share, by ratio of standard deviations",
    source="the marginal likelihood of third-party tables, and that of measured ones; docs/log.md, 2026-11-26",
)
"""How much less a topology may differ from all others than `OWN_DEVIATION`."""

FACTOR_CHANCES: Final = _constant(
    "FACTOR_CHANCES",
    {0.5: 0.2, 1.0: 0.5, 2.0: 0.2, 4.0: 0.1},
    unit="share, by ratio of standard deviations",
    source="a tail, as of a calibration's links: one cluster in three is unlike those that are known; half, as of the "
    "residual; not fitted",
)
"""Chance that the site factors lie so many times as far from the model's as assumed."""

TERM_DEVIATIONS: Final = _constant(
    "TERM_DEVIATIONS",
    {
        "bubble": 0.2,
        "head": 0.2,
        "pipeline": 0.3,
        "data_parallel": 0.3,
        "sharding": 0.2,
        "optimizer": 0.3,
        "experts": 0.3,
        "routing": 0.3,
        "dispatch": 0.2,
        "host_link": 0.3,
    },
    unit="standard deviation of a logarithm",
    source="no source; experts: published runs give 1 to 18 us for the kernel of one expert (EXPERT_PRODUCT_SECONDS)",
)
"""By how much the cost model may misjudge terms, beyond what site factors cover."""

LENGTH_CHANCES: Final = _constant(
    "LENGTH_CHANCES",
    {1.0: 1 / 3, 2.0: 1 / 3, 4.0: 1 / 3},
    unit="share, by doublings",
    source="SHAPE_LENGTH_SCALE to four times, as a calibration averages over; not fitted",
)
"""Chance that what topologies share of the residual fades over so many doublings."""

LEVEL_CHANCES: Final = _constant(
    "LEVEL_CHANCES",
    {0.0: 0.95, 2.0: 0.05},
    unit="share, by standard deviation of a logarithm",
    source="a tail: a catalog's figures may be those of other hardware, several times as fast or as slow; not fitted",
)
"""Probability that all topologies are several times slower or faster than the model predicts."""

ELSEWHERE_DEVIATION: Final = _constant(
    "ELSEWHERE_DEVIATION",
    2.0,
    unit="standard deviation of a logarithm",
    source="as the level's tail: machines several times as fast or as slow; not fitted",
)
"""Prior deviation of a study's runs from a calibration that its first run contradicts."""

NOISE_CHANCES: Final = _constant(
    "NOISE_CHANCES",
    {1.0: 0.85, 2.0: 0.05, 4.0: 0.05, 8.0: 0.05},
    unit="share, by ratio of standard deviations",
    source="no source",
)
"""Chance that single runs are so many times as noisy as assumed."""

RECORD_LENGTH: Final = _constant("RECORD_LENGTH", 60, unit="runs", source="no source")
"""Runs whose record decides how far the model is trusted: the time that it takes grows with their third power."""

TRUST_STEP: Final = _constant("TRUST_STEP", 1.25, unit="ratio of standard deviations", source="no source")
"""Steps of how far the model is trusted, and change of the noise from which on all observations are weighed anew."""

SHARE_STEP: Final = _constant("SHARE_STEP", 0.2, unit="share", source="no source")
"""Steps of the shares of the lengths over which the residual fades."""

MEMORY_FIGURE_DEVIATION: Final = _constant(
    "MEMORY_FIGURE_DEVIATION", 0.015, unit="standard deviation of a logarithm", source="no source"
)
"""Deviation of a memory figure of the whole process on the fullest GPU."""

SHOWN_MEMORY_DEVIATION: Final = _constant(
    "SHOWN_MEMORY_DEVIATION",
    0.05,
    unit="standard deviation of a logarithm",
    source="what the allocator caches and fragments, 4% to 6% of what it holds; not fitted",
)
"""Deviation of a memory figure of one GPU, or of an allocator."""

PARTIAL_FIGURE: Final = _constant("PARTIAL_FIGURE", 0.5, unit="share of the expected figure", source="no source")
"""Share below which such a figure is a lower bound only: logs may print the memory before the first step."""

MEMORY_MARGIN: Final = _constant(
    "MEMORY_MARGIN",
    (0.02, 0.03),
    unit="mean and standard deviation of a logarithm",
    source="the fullest published runs, to the GB or half of it: 95% to 100% of an A100 (BLOOM), 98% of a V100 (the "
    "104B tune-up), 94% to 100% of two V100s (a 1.3B model); what stopped the next larger one is unknown",
)
"""By how much less than the limit a cluster's GPUs hold."""

FORECAST_DEVIATION: Final = _constant(
    "FORECAST_DEVIATION", 0.03, unit="standard deviation of a logarithm", source="no source"
)
"""Deviation of the time that a stopped job was heading for."""

# selection
MAX_CANDIDATES: Final = _constant(
    "MAX_CANDIDATES", 200_000, unit="candidates", source="as many as a search holds in less than 400 MB of memory"
)
"""Most topologies that a search considers; of a larger space the most promising ones."""

SAMPLED_CANDIDATES: Final = _constant("SAMPLED_CANDIDATES", 40_000, unit="candidates", source="no source")
"""Those among them that are the best of each region rather than the best of all."""

OPTIMISM: Final = _constant("OPTIMISM", 2.0, unit="standard deviations", source="no source")
"""Possible reduction of a topology's memory below its expectation."""

# acquisition
FIRST_EVALUATED: Final = _constant("FIRST_EVALUATED", 4096, unit="candidates", source="no source")
"""Candidates whose acquisition is evaluated first; more follow while one of them could be better."""

MAX_FIRST_RISK: Final = _constant("MAX_FIRST_RISK", 0.6, unit="probability", source="no source")
"""Probability of running out of memory above which a candidate is not tried first while a safer one is open."""

LIKELY_OOM: Final = _constant("LIKELY_OOM", 0.5, unit="probability", source="more likely than not")
"""Probability of running out of memory above which `plan` tries a candidate last and the memory filter rejects it."""

OOM_COST: Final = _constant(
    "OOM_COST",
    0.005,
    unit="share of the time to finish",
    source="of 0.2%, 0.5% and 1% the smallest that costs no more jobs and node-hours on eight simulated clusters than "
    "a cut at a risk of 60% did",
)
"""Cost of a job that runs out of memory."""

MIN_EXPECTED_GAIN: Final = _constant(
    "MIN_EXPECTED_GAIN",
    0.0007,
    unit="share of the time to finish",
    source="between 0.04% and 0.1%, regret falls as jobs rise (docs/log.md, 2026-11-26); not fitted",
)
"""Net saving that the next job must be expected to bring."""

DOUBTED_MODEL: Final = _constant("DOUBTED_MODEL", 1.5, unit="ratio of standard deviations", source="no source")
"""By how much more than assumed the model is off from which on new splits go first."""

MIN_NEW_SPLIT_CHANCE: Final = _constant("MIN_NEW_SPLIT_CHANCE", 0.05, unit="probability", source="no source")
"""Where the model is doubted, a split of the model (tp by pp) of which nothing has run goes before another of a split
that has, if one of it is sooner than the best with this probability: there the model says too little
of what splits have in common."""

UNTRIED_DEGREE_CHANCE: Final = _constant("UNTRIED_DEGREE_CHANCE", 0.05, unit="probability", source="no source")
"""Chance, where the model is doubted, that runs with other tensor parallel degrees say nothing about a degree of which
nothing has run."""

# trials at a reduced size
HALVED_DP_DEVIATION: Final = _constant(
    "HALVED_DP_DEVIATION",
    0.014,
    unit="standard deviation of a logarithm",
    source="of the order of the corpus' pairs of GPU counts: their median error is 1% to 3% where the degree is halved "
    "(python -m benchmarks.fidelity --tables corpus)",
)
"""Deviation that each halving of the data parallel degree adds to an extrapolation of one topology."""

GROWTH_DEVIATIONS: Final = _constant(
    "GROWTH_DEVIATIONS", (0.014, 0.15), unit="standard deviation of a logarithm", source="no source"
)
"""Deviation that all topologies share of an extrapolation: with each doubling of the ranks, and with each doubling of
the nodes by what part of an iteration goes over the network."""

ITERATION_DEVIATION: Final = _constant(
    "ITERATION_DEVIATION", 0.004, unit="standard deviation of a logarithm", source="no source"
)
"""Deviation between iterations of one job."""
