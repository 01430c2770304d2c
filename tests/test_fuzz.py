"""For arbitrary arguments and files, a command succeeds or prints a one-sentence error."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import TARGETS, failures
from tuner.cli import main
from tuner.core.errors import TunerWarning
from tuner.space.axes import SETTABLE

words = st.one_of(
    st.text(max_size=12),
    st.integers().map(str),
    st.sampled_from(["0", "-1", "1e9", "nan", "8", "9" * 60, "tp=8", "tp8-pp12-mbs1-z1", "/", ".", "..", "/dev/null"]),
    st.tuples(st.sampled_from(SETTABLE), st.text("0123456789,-xonf", max_size=8)).map("=".join),
)
flags = st.sampled_from(
    [
        *("--model", "--cluster", "--nodes", "--gpus-per-node", "--gpu", "--global-batch", "--seq", "--precision"),
        *("--attention", "--set", "--allow", "--ramp", "--top", "--iterations", "--bogus"),
    ]
)
numbers = st.integers(-3, 70).map(str)


def answer(arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as left:
        main(arguments)
    assert isinstance(left.value.code, int)
    return left.value.code, out.getvalue(), err.getvalue()


def check(arguments: list[str]) -> None:
    code, out, err = answer(arguments)
    assert code in (0, 1, 2)
    if code:
        *notes, last = err.splitlines()
        assert last.startswith("tuner: ")
        assert all(note.startswith("tuner: warning: ") for note in notes)
        assert all(line.isprintable() for line in [*notes, last])
        assert out == ""
    else:
        assert out
        assert all(line.startswith("tuner: warning: ") for line in err.splitlines())


@given(st.sampled_from(["plan", "explain", "measure", "catalog"]), st.lists(st.tuples(flags, words), max_size=3), words)
def test_no_argument_makes_a_traceback(command: str, options: list[tuple[str, str]], word: str) -> None:
    check([command, *(part for option in options for part in option), *([word] if command != "plan" else [])])


@given(
    st.tuples(*(st.tuples(st.just(flag), numbers) for flag in ("--nodes", "--gpus-per-node", "--global-batch"))),
    st.lists(st.tuples(st.sampled_from(SETTABLE), numbers).map("=".join), max_size=3),
)
def test_no_small_numbers_make_a_traceback(sizes: tuple[tuple[str, str], ...], settings: list[str]) -> None:
    check(["plan", *(part for size in sizes for part in size), *(part for s in settings for part in ("--set", s))])


@given(st.text(alphabet="tpcvdmbsz0123456789-xhg", max_size=40))
def test_no_key_makes_a_traceback(key: str) -> None:
    check(["explain", "--", key])


@given(st.one_of(st.text(max_size=300), st.binary(max_size=300).map(lambda raw: raw.decode("latin-1"))))
def test_no_model_file_makes_a_traceback(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    for name in ("fuzzed.toml", "fuzzed.json"):
        Path(folder / name).write_text(text, encoding="utf-8", errors="surrogatepass")
        check(["plan", "--model", str(folder / name)])


@pytest.mark.parametrize(("count", "seed"), [(250, 1), pytest.param(4000, 2, marks=pytest.mark.slow)])
def test_every_reader_refuses_damaged_input_in_one_sentence(count: int, seed: int) -> None:
    assert list(failures(count, seed)) == []


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_damaged_is_sound_before(name: str, tmp_path: Path) -> None:
    """The undamaged input of every target is accepted by its reader."""
    sound = TARGETS[name].sound()
    assert sound
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TunerWarning)
        for content in sound[:3]:
            TARGETS[name].read(tmp_path, content)


sizes = st.one_of(st.integers(-2, 10**20), st.none(), st.text(max_size=3), st.floats(), st.booleans(), st.just([]))


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "intermediate_size"),
                *("num_key_value_heads", "head_dim", "max_position_embeddings", "tie_word_embeddings", "n_embd"),
                *("n_layer", "n_head", "attention_bias", "bias", "multi_query", "word_embed_proj_dim", "num_experts"),
            ]
        ),
        sizes,
    ),
    st.sampled_from(["llama", "gpt2", "opt", "falcon", "gemma", "qwen3", "gpt_neox", "bloom", "", None, 3]),
)
def test_no_hugging_face_config_makes_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, object], family: object
) -> None:
    import json

    path = tmp_path_factory.getbasetemp() / "config.json"
    sound = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 99}
    path.write_text(json.dumps({"model_type": family, **sound, **config}))
    check(["plan", "--model", str(path), "--global-batch", "32"])
