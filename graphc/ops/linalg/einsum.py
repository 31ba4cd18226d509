"""einsum: one op contracts two operands; the public function reduces every equation to such steps.

"bij,bjk,kk->bi"   repeated letters in one operand     -> diagonal
                   letters of one operand only         -> sum, before anything is multiplied
                   more than two operands              -> pairs, the greedy order of np.einsum_path:
                                                          the pair that shrinks the total size most
                   a pair without a summed letter      -> aligned and multiplied, no contraction
"""

from __future__ import annotations

import string
from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from graphc.base.record import record
from graphc.errors import TypeRuleError
from graphc.ir.op import Attr, Contraction, Op
from graphc.ir.sizes import is_open
from graphc.ir.traits import Traits
from graphc.ir.types import BOOL, AnyType, Dimension, Type, definitely_different, tensor
from graphc.ops.linalg.matmul import (
    Dims,
    accumulable,
    contract,
    contraction_cost,
    contraction_types,
)
from graphc.ops.record.arguments import Array, ArrayLike, DTypeLike
from graphc.ops.record.batching import Lanes
from graphc.ops.record.dims import rank_of, row_major_strides, samples_of, shape_of
from graphc.ops.record.families import REAL, define, require
from graphc.ops.record.value import Value, common_element, functions, public
from graphc.ops.shape.shape import reshape, transpose

LETTERS = string.ascii_letters
Label = Hashable

# ------------------------------------------------------------------------------------ the op


def _terms(equation: str) -> tuple[str, str, str]:
    """The letters of both operands and the result. Raises TypeRuleError for any other form."""
    inputs, arrow, result = equation.partition("->")
    first, comma, second = inputs.partition(",")
    letters = set(first + second + result)
    require(bool(arrow and comma) and letters <= set(LETTERS), f"einsum: equation {equation!r}")
    for term in (first, second, result):
        require(
            len(set(term)) == len(term), f"einsum: a letter repeats in {term!r} of {equation!r}"
        )
    require(set(result) <= set(first + second), f"einsum: {equation!r} makes up a letter")
    lonely = (set(first) ^ set(second)) - set(result)
    require(not lonely, f"einsum: {equation!r} sums over letters of one operand: {sorted(lonely)}")
    return first, second, result


def _infer_einsum(a: AnyType, b: AnyType, *, equation: str) -> Type:
    a, b = contraction_types("einsum", a, b)
    first, second, result = _terms(equation)
    require(
        len(first) == a.rank and len(second) == b.rank,
        f"einsum: {equation!r} does not fit the ranks of {a} and {b}",
    )
    extents: dict[str, Dimension] = dict(zip(first, a.shape))
    for letter, extent in zip(second, b.shape):
        if definitely_different(extents.setdefault(letter, extent), extent):
            raise TypeRuleError(
                f"einsum: {letter!r} of {equation!r} is {extents[letter]} in {a}, {extent} in {b}"
            )
    return tensor(a.dtype, (extents[letter] for letter in result))


def _einsum_dims(node: Any) -> Dims:
    first, second, result = _terms(node.attrs["equation"])
    types = (node.inputs[0].type, node.inputs[1].type, node.type)
    tables = [
        dict(zip(term, row_major_strides(kind.dims)))
        for term, kind in zip((first, second, result), types)
    ]
    extents = dict(zip(first + second, types[0].dims + types[1].dims))
    found: Dims = []
    for letter in dict.fromkeys(result + first):
        left, right, made = (letter in term for term in (first, second, result))
        role = "k" if not made else "batch" if left and right else "m" if left else "n"
        found.append((role, extents[letter], *(t.get(letter, 0) for t in tables)))
    return found


def _einsum_reference(a: Array, b: Array, equation: str) -> Any:
    wide = (accumulable(a), accumulable(b))
    return np.einsum(equation, *wide, optimize=True).astype(a.dtype)


def _einsum_gradient(
    ct: Value, result: Value, a: Value, b: Value, *, equation: str
) -> tuple[Any, Any]:
    """The same sum of products with the result in an operand's place: every letter of an operand
    is in the other one or in the result.
    """
    first, second, made = (tuple(term) for term in _terms(equation))
    change = Term(ct, made)
    return (
        _product(change, Term(b, second), first).value,
        _product(Term(a, first), change, second).value,
    )


def _batch_einsum(op: Op, lanes: Lanes, *values: Value, equation: str) -> Any:
    """One more letter, for the lanes, and none for axes of extent 1, which a row or a column of one
    lane leaves: rows of all lanes are one matrix, outer products are products of elements."""
    free = [letter for letter in LETTERS if letter not in equation]
    if not free:
        return NotImplemented
    first, second, result = (
        free[0] * has + term for has, term in zip((*lanes.mapped, True), _terms(equation))
    )
    terms = [Term(values[0], tuple(first)), Term(values[1], tuple(second))]
    extents = _extents(terms)
    units = {k for k, d in extents.items() if not is_open((d,)) and d == 1} - {free[0]}
    a, b = (_without(term, units) for term in terms)
    made = _product(a, b, [label for label in result if label not in units])
    return reshape(made.value, tuple(extents[label] for label in result))


einsum_op = define(
    "einsum",
    batch=_batch_einsum,
    infer=_infer_einsum,
    reference=_einsum_reference,
    lower=Contraction(_einsum_dims),
    attrs=(Attr("equation", "str"),),
    dtypes=REAL,
    gradient=_einsum_gradient,
    cost=contraction_cost,
    samples=samples_of(
        [
            ([(2, 3, 4), (4, 2, 5)], {"equation": "abc,cad->dab"}),
            ([(3, 4), (4, 3)], {"equation": "ab,ba->"}),
            ([(2, 3), (2, 3)], {"equation": "ab,ab->a"}),
            ([(2, 8, 3, 4), (2, 6, 3, 4)], {"equation": "abcd,aecd->acbe"}),
        ],
        [
            ([(2, 3), (4, 5)], {"equation": "ab,bc->ac"}),
            ([(2, 2), (2, 5)], {"equation": "aa,ac->ac"}),
            ([(2, 3), (3, 5)], {"equation": "ab,bc->a"}),
            ([(2, 3), (3, 5)], {"equation": "ab,bc->ax"}),
            ([(2, 3), (3, 5)], {"equation": "ab bc ac"}),
        ],
        dtypes=REAL,
        tolerance=4.0,
    ),
    doc="Sum of products of two operands; a letter names an axis, once per operand, and is summed "
    "where the result lacks it.",
    traits=Traits(matrix_product=True),
)

# ------------------------------------------------------------------------------------ parsing


@record(frozen=True)
class Term:
    """An operand with a label per axis."""

    value: Any
    labels: tuple[Label, ...]

    def extent(self, label: Label) -> Dimension:
        return shape_of(self.value)[self.labels.index(label)]


def _labels(text: str, rank: int | None, shown: str) -> list[Label]:
    """Labels of one term of a subscript string; an ellipsis becomes numbered ones, last is -1."""
    before, dots, after = text.partition("...")
    require(set(before + after) <= set(LETTERS), f"einsum: cannot read {shown!r}")
    if not dots:
        fits = rank in (None, len(before))
        require(fits, f"einsum: {text!r} of {shown!r} names {len(before)} axes of {rank}")
        return list(before)
    hidden = 0 if rank is None else rank - len(before) - len(after)
    require(hidden >= 0, f"einsum: {text!r} of {shown!r} has too many letters for rank {rank}")
    return [*before, *range(-hidden, 0), *after]


def _parse(subscripts: str, operands: Sequence[Any]) -> tuple[list[Term], list[Label]]:
    text = subscripts.replace(" ", "")
    inputs, arrow, result = text.partition("->")
    parts = inputs.split(",")
    require(len(parts) == len(operands), f"einsum: {text!r} for {len(operands)} operand(s)")
    terms = [Term(x, tuple(_labels(part, rank_of(x), text))) for part, x in zip(parts, operands)]
    hidden = max((-k for t in terms for k in t.labels if isinstance(k, int)), default=0)
    every = [k for t in terms for k in t.labels if isinstance(k, str)]
    if arrow:
        before, dots, after = result.partition("...")
        middle = range(-hidden, 0) if dots else ()
        made = [*_labels(before, None, text), *middle, *_labels(after, None, text)]
    else:
        made = [*range(-hidden, 0), *sorted(k for k in set(every) if every.count(k) == 1)]
    known = {k for t in terms for k in t.labels}
    require(
        set(made) <= known and len(set(made)) == len(made),
        f"einsum: the result of {text!r} repeats or makes up a letter",
    )
    return terms, made


def _parse_lists(operands: Sequence[Any]) -> tuple[list[Term], list[Label]]:
    """The interleaved form: array, axis numbers, array, axis numbers, ..., result axis numbers."""
    pairs = len(operands) // 2
    spelled = [_spell(operands[2 * k + 1]) for k in range(pairs)]
    text = ",".join(spelled)
    if len(operands) % 2:
        text += "->" + _spell(operands[-1])
    return _parse(text, operands[0 : 2 * pairs : 2])


def _spell(axes: Any) -> str:
    return "".join("..." if k is Ellipsis else LETTERS[int(k)] for k in axes)


# ------------------------------------------------------------------------------------ steps


def _without_repeats(term: Term) -> Term:
    """The diagonal over the axes of every label that the term repeats."""
    for label in term.labels:
        while term.labels.count(label) > 1:
            first = term.labels.index(label)
            second = term.labels.index(label, first + 1)
            rest = tuple(k for i, k in enumerate(term.labels) if i not in (first, second))
            term = Term(functions.diagonal(term.value, 0, first, second), (*rest, label))
    return term


def _without_units(term: Term, extents: dict[Label, Dimension]) -> Term:
    """Axes of extent 1 that broadcast against a longer one are dropped."""
    pairs = zip(term.labels, shape_of(term.value))
    units = {k for k, d in pairs if d is not extents[k] and d == 1 and extents[k] != 1}
    return _without(term, units) if units else term


def _without(term: Term, labels: set[Any]) -> Term:
    """The term without some axes of extent 1."""
    kept = [i for i, k in enumerate(term.labels) if k not in labels]
    value = reshape(term.value, tuple(shape_of(term.value)[i] for i in kept))
    return Term(value, tuple(term.labels[i] for i in kept))


def _summed(term: Term, needed: set[Label]) -> Term:
    """The sum over labels that nothing else needs."""
    axes = tuple(i for i, k in enumerate(term.labels) if k not in needed)
    if not axes:
        return term
    element = common_element(term.value)[0]
    if element is BOOL:
        value = functions.any(term.value, axis=axes)
    else:
        value = functions.sum(term.value, axis=axes, dtype=element)
    return Term(value, tuple(k for k in term.labels if k in needed))


def _arranged(term: Term, result: Sequence[Label]) -> Any:
    """The value with its axes in the order of the result, and extent 1 for labels it lacks."""
    order = [term.labels.index(k) for k in result if k in term.labels]
    moved = transpose(term.value, order)
    dims = tuple(term.extent(k) if k in term.labels else 1 for k in result)
    return reshape(moved, dims)


def _product(a: Term, b: Term, result: Sequence[Label]) -> Term:
    """One pair contracted to the labels of the result."""
    if set(a.labels) | set(b.labels) == set(result):
        value = functions.multiply(_arranged(a, result), _arranged(b, result))
        return Term(value, tuple(result))
    # Letters in order of appearance: equal contractions become equal nodes.
    names = dict(zip(dict.fromkeys((*a.labels, *b.labels)), LETTERS))
    first, second, made = ("".join(names[k] for k in t) for t in (a.labels, b.labels, result))
    value = contract("einsum", a.value, b.value, equation=f"{first},{second}->{made}")
    return Term(value, tuple(result))


def _size(labels: set[Label], extents: dict[Label, Dimension]) -> int:
    total = 1
    for label in labels:
        extent = extents[label]
        total *= extent if isinstance(extent, int) else 64  # a guess orders symbolic sizes
    return total


def _next_pair(terms: list[Term], result: Sequence[Label], extents: dict[Label, Dimension]) -> Any:
    """The pair whose product shrinks the total size most: (a, b, labels of the product)."""
    best = None
    for a, b in combinations(terms, 2):
        elsewhere = {k for t in terms if t is not a and t is not b for k in t.labels} | set(result)
        both = dict.fromkeys((*a.labels, *b.labels))
        kept = [k for k in both if k in elsewhere]
        change = _size(set(kept), extents) - sum(_size(set(t.labels), extents) for t in (a, b))
        score = (change, _size(set(both), extents))
        if best is None or score < best[0]:
            best = (score, a, b, kept)
    assert best is not None
    return best[1:]


def _extents(terms: list[Term]) -> dict[Label, Dimension]:
    """The extent of every label. Raises TypeRuleError when two operands disagree."""
    known: dict[Label, Dimension] = {}
    for term in terms:
        for label, extent in zip(term.labels, shape_of(term.value)):
            before = known.setdefault(label, extent)
            if before is extent:
                continue
            if before != 1 and extent != 1 and definitely_different(before, extent):
                shown = "an axis of the ellipsis" if isinstance(label, int) else repr(label)
                raise TypeRuleError(f"einsum: {shown} is {before} here and {extent} there")
            known[label] = extent if before == 1 else before
    return known


@public(np.einsum)
def einsum(*operands: ArrayLike, optimize: object = True, dtype: DTypeLike | None = None) -> Any:
    """np.einsum: sums of products named by letters, in subscript or interleaved form."""
    if isinstance(operands[0], str):
        terms, result = _parse(operands[0], operands[1:])
    else:
        terms, result = _parse_lists(operands)
    element = common_element(*(t.value for t in terms))[0]
    extents = _extents(terms)
    terms = [
        _without_units(
            _without_repeats(Term(functions.astype(t.value, element), t.labels)), extents
        )
        for t in terms
    ]
    for k, term in enumerate(terms):
        others = {label for t in (*terms[:k], *terms[k + 1 :]) for label in t.labels}
        terms[k] = _summed(term, others | set(result))
    while len(terms) > 1:
        a, b, kept = _next_pair(terms, result, extents)
        made = _product(a, b, result if len(terms) == 2 else kept)
        terms = [t for t in terms if t is not a and t is not b] + [made]
    return _arranged(terms[0], result)
