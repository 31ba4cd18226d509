"""Strings: operators on the list of words that a Text has, tables on the places in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from graphc.formats.deciding_values import known, refuse
from graphc.formats.encoded_values import Text, text_of
from graphc.formats.onnx.patterns import Pattern
from graphc.formats.onnx.table import MICROSOFT, operator
from graphc.limits import check_within
from graphc.ops.record.value import functions as f

Array = np.ndarray[Any, Any]
CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def _strings(x: Any) -> Array:
    """The strings themselves, where they decide sizes."""
    return np.asarray(np.array([*x.spelled(), ""], object)[known(x.value)], object)


@operator("StringConcat", carried=True, spells=True)
def concat(x: Text, y: Text) -> Any:
    """Each pair of words is a word of the result."""
    first, second = x.spelled(), y.spelled()
    check_within("folded_elements", len(first) * len(second), "pairs of strings")
    words = [a + b for a in first for b in second]
    return Text(f.add(f.multiply(x.value, len(second)), y.value), tuple(words))


@operator("StringSplit", carried=True, spells=True)
def split(x: Text, *, delimiter: str = "", maxsplit: int = -1) -> Any:
    texts = _strings(x)
    cut = [text.split(delimiter or None, maxsplit) for text in texts.reshape(-1)]
    counts = np.array([len(parts) for parts in cut], np.int64).reshape(texts.shape)
    most = int(counts.max(initial=0))
    check_within("folded_elements", most * len(cut), "pieces of strings")
    rows = [[*parts, *[""] * (most - len(parts))] for parts in cut]
    return text_of(np.array(rows, object).reshape(*texts.shape, most)), counts


@operator("StringNormalizer", carried=True, spells=True)
def normalize(
    x: Text,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: Sequence[str] = (),
) -> Any:
    refuse(case_change_action in CASES, f"no change {case_change_action!r}")
    change = CASES[case_change_action]
    words = tuple(change(word) for word in x.spelled())
    if not stopwords:
        return Text(x.value, words)
    texts = _strings(x)
    refuse(texts.ndim == 1 or texts.shape[0] == 1, f"strings of shape {list(texts.shape)}")
    alike: Callable[[str], str] = str if is_case_sensitive else str.lower
    stopped = set(map(alike, stopwords))
    kept = [change(text) for text in texts.reshape(-1) if alike(text) not in stopped]
    found = np.array(kept or [""], object)
    return text_of(found if texts.ndim == 1 else found[None])


# ------------------------------------------------------------------------------------- tokens

START, END = "\x02", "\x03"  # around each text, where these are asked for


@operator("RegexFullMatch", carried=True, spells=True)
def full_match(x: Text, *, pattern: str = "") -> Any:
    return x.through(Pattern.read(pattern).is_all_of(x.spelled()), np.bool_)


@operator("Tokenizer", domain=MICROSOFT, carried=True, spells=True)
def tokens(
    x: Text,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] = (),
    tokenexp: str = "",
) -> Any:
    """The tokens of each text, or the pieces between separators, filled up on the right."""
    refuse(bool(separators) != bool(tokenexp), "tokens or separators, one of them")
    texts = _strings(x)
    refuse(texts.ndim in (1, 2), f"strings of shape {list(texts.shape)}")
    rows = [[text] for text in texts.reshape(-1)]
    if tokenexp:
        rows = _cut(rows, tokenexp, _inside)
    elif list(separators) == [""]:
        rows = [list(text) for (text,) in rows]
    else:  # the first cuts first
        for separator in separators:
            rows = _cut(rows, separator, _between)
    rows = [[token for token in row if len(token) >= max(mincharnum, 1)] for row in rows]
    if mark:
        rows = [[START, *row, END] for row in rows]
    most = max(map(len, rows), default=0)
    filled = [[*row, *[pad_value] * (most - len(row))] for row in rows]
    return text_of(np.array(filled, object).reshape(*texts.shape, most))


Spans = Sequence[tuple[int, int]]


def _cut(
    rows: list[list[str]], pattern: str, parts: Callable[[str, Spans], Any]
) -> list[list[str]]:
    """The parts of each row's pieces, by where a pattern is found in them."""
    spans = iter(Pattern.read(pattern).found([piece for row in rows for piece in row]))
    return [[part for piece in row for part in parts(piece, next(spans))] for row in rows]


def _inside(text: str, spans: Spans) -> list[str]:
    return [text[start:stop] for start, stop in spans]


def _between(text: str, spans: Spans) -> list[str]:
    starts, stops = [0, *(stop for _, stop in spans)], [*(start for start, _ in spans), len(text)]
    return [text[start:stop] for start, stop in zip(starts, stops)]


# ------------------------------------------------------------------------------------ n-grams


class _Grams:
    """The n-grams of a pool as one table per length: a gram is a shorter one and a token.

    tokens   all tokens, sorted
    levels   per length, the keys (place of the gram without its last token, place of that token)
             as one number, sorted
    columns  per length, where the result counts each gram; the last entry is for none of them
    """

    def __init__(self, pool: Array, starts: Sequence[int], columns: Sequence[int]) -> None:
        self.tokens = np.unique(pool)
        places = np.searchsorted(self.tokens, pool)
        self.levels: list[Array] = []
        self.columns: list[Array] = []
        bounds = [*starts, len(pool)]
        ahead = 0
        grams = []
        for size, (first, last) in enumerate(pairwise(bounds), 1):
            refuse(0 <= first <= last <= len(pool), "n-grams begin beyond the pool")
            refuse((last - first) % size == 0, f"{last - first} tokens are no {size}-grams")
            rows = places[first:last].reshape(-1, size)
            grams.append((rows, columns[ahead : ahead + len(rows)]))
            ahead += len(rows)
        refuse(ahead == len(columns), f"{len(columns)} places for {ahead} n-grams")
        self._fill(grams, max(columns, default=-1) + 1)

    def _fill(self, grams: list[tuple[Array, Sequence[int]]], none: int) -> None:
        for size in range(1, len(grams) + 1):
            prefixes = [rows[:, :size] for rows, _ in grams if rows.shape[1] >= size]
            keys = np.unique(np.concatenate([self._keys(rows) for rows in prefixes]))
            self.levels.append(keys)
            rows, columns = grams[size - 1]
            table = np.full(len(keys) + 1, none, np.int64)
            table[np.searchsorted(keys, self._keys(rows))] = columns
            self.columns.append(table)

    def _keys(self, rows: Array) -> Array:
        """Grams of one length as numbers; those that are shorter have their levels already."""
        place = np.zeros(len(rows), np.int64)
        for size in range(rows.shape[1]):
            key = place * len(self.tokens) + rows[:, size]
            place = np.searchsorted(self.levels[size], key) if size + 1 < rows.shape[1] else key
        return place

    def found(self, windows: Sequence[Any], level: int) -> Any:
        """The column of each gram; windows[k] has the places of its k-th tokens, -1 for others."""
        place: Any = np.int64(0)
        for size in range(level):
            token = windows[size]
            key = f.add(f.multiply(place, len(self.tokens)), token)
            place, known_ = _look_up(key, self.levels[size])
            known_ = f.logical_and(known_, f.greater_equal(token, 0))
            place = f.where(known_, place, np.int64(-(2**31)))
        end = len(self.columns[level - 1]) - 1
        column = f.where(f.less(place, 0), np.int64(end), place)
        return f.take(self.columns[level - 1], column, axis=0)


def _look_up(values: Any, table: Array) -> tuple[Any, Any]:
    """Where values are in a sorted table, and whether they are."""
    if not len(table):
        nowhere = f.multiply(values, 0)
        return nowhere, f.not_equal(nowhere, 0)
    place = f.astype(f.minimum(f.searchsorted(table, values), len(table) - 1), np.int64)
    return place, f.equal(f.take(table, place, axis=0), values)


@operator("TfIdfVectorizer", carried=True)
def tf_idf(
    x: Any,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int],
    pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[str] = (),
    weights: Sequence[float] = (),
) -> Any:
    refuse(1 <= min_gram_length <= max_gram_length <= 64, "lengths of n-grams")
    refuse(0 <= max_skip_count <= 1024, f"{max_skip_count} tokens left out")
    refuse(len(ngram_counts) >= max_gram_length, "n-grams without a beginning")
    refuse(min(ngram_indexes, default=0) >= 0, "places of n-grams are negative")
    count = max(ngram_indexes, default=-1) + 1
    check_within("folded_elements", count, f"{count} n-grams")
    tokens = isinstance(x, Text)
    pool = np.array(pool_strings if tokens else pool_int64s, object if tokens else np.int64)
    grams = _Grams(pool, ngram_counts, ngram_indexes)
    places = _places(x, grams.tokens)
    rows = f.reshape(places, (1, -1)) if places.ndim == 1 else places
    totals: Any = f.zeros((rows.shape[0], count + 1), np.float32)
    for columns in _columns(rows, grams, (min_gram_length, max_gram_length), max_skip_count):
        totals = f.add(totals, _counted(columns, count + 1))
    totals = f.getitem(totals, (slice(None), slice(0, count)))
    factor = np.ones(count, np.float32)
    refuse(len(weights) in (0, len(ngram_indexes)), f"{len(weights)} weights")
    factor[list(ngram_indexes)[: len(weights)]] = weights
    made = _weighted(totals, mode, factor)
    return f.reshape(made, (count,)) if places.ndim == 1 else made


def _places(x: Any, tokens: Array) -> Any:
    """Where each token is in the list of all; -1 for one that is not."""
    if isinstance(x, Text):
        place = {word: k for k, word in enumerate(tokens.tolist())}
        return x.through([place.get(word, -1) for word in x.words], np.int64)
    place, known_ = _look_up(f.astype(x, np.int64), tokens)
    return f.where(known_, place, np.int64(-1))


def _columns(rows: Any, grams: _Grams, lengths: tuple[int, int], skips: int) -> Any:
    """The columns of all grams of a row, one array per length and distance of tokens.

    Behind the end of a row stand tokens that are in no gram: every token begins one, however long
    rows are.
    """
    extent = rows.shape[1]
    beyond = (lengths[1] - 1) * (skips + 1)
    nowhere = f.full((rows.shape[0], beyond), np.int64(-1))
    padded = f.concatenate([rows, nowhere], 1) if beyond else rows
    for size in range(lengths[0], lengths[1] + 1):
        for step in range(1, (skips if size > 1 else 0) + 2):
            windows = [
                f.getitem(padded, (slice(None), slice(k * step, k * step + extent)))
                for k in range(size)
            ]
            yield grams.found(windows, size)


def _counted(columns: Any, count: int) -> Any:
    """How often each column occurs in each row."""
    rows = columns.shape[0]
    ahead = f.multiply(f.arange(rows), count)[:, None]
    flat = f.reshape(f.add(columns, ahead), (-1,))
    none = f.zeros((rows * count,), np.float32)
    found = f.index_update(none, flat, f.ones(flat.shape, np.float32), "add")
    return f.reshape(found, (rows, count))


def _weighted(totals: Any, mode: str, weights: Array) -> Any:
    refuse(mode in ("TF", "IDF", "TFIDF"), f"no mode {mode!r}")
    if mode == "TF":
        return totals
    seen = f.astype(f.greater(totals, 0), np.float32) if mode == "IDF" else totals
    return f.multiply(seen, weights)
