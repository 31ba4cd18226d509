"""Contraction kernels for GPUs: code for three chips without one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from effort import few
from gpu_launches import launches_of

import graphc as gc
from graphc.codegen.gpu import toolkit
from graphc.codegen.gpu.arch import Chip
from graphc.codegen.gpu.compile import compile_ptx
from graphc.codegen.gpu.contraction.kernels import Contract, Launches, contract_launches
from graphc.codegen.gpu.contraction.thin import thin_cut
from graphc.codegen.gpu.contraction.tile_choice import (
    DOUBLE,
    GROUPS,
    MATRICES,
    SINGLE,
    TF32_GROUPS,
    Group,
    Matrix,
    Thin,
    Tile,
    cut,
    tiles_for,
)
from graphc.codegen.gpu.launch import Launch
from graphc.codegen.lowering.contraction import form_of
from graphc.ir.graph import Graph

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed")

CHIPS = [Chip("sm_75"), Chip("sm_80"), Chip("sm_90")]
MOST_REGISTERS = 255  # of a thread, and those of a processor: blocks that share it have their parts
REGISTERS = 1 << 16
SHARED = {
    "sm_75": 0,
    "sm_80": 99 << 10,
    "sm_90": 227 << 10,
    "sm_120": 99 << 10,
}  # bytes, that newer chips have, too


def dense(x: Any, y: Any, z: Any) -> Any:
    return np.maximum(x @ y + z, 0)


def dense_transposed(x: Any, y: Any, z: Any) -> Any:
    return gc.nn.gelu(x @ y.T + z)


def convolved(x: Any, y: Any, z: Any) -> Any:
    return gc.conv(x, y) + z


def region(function: Any, dtype: str, *shapes: tuple[int, ...]) -> Graph:
    return gc.compile(function).graph(*(gc.spec(shape, dtype) for shape in shapes))


def contract(given: Graph, chip: Chip, *options: Any) -> Launches:
    return Contract(given, form_of(given), chip).launches(*options)


def matrices(m: int, n: int, k: int, dtype: str = "f32") -> Graph:
    return region(dense, dtype, (m, k), (k, n), (n,))


def images(dtype: str) -> Graph:
    return region(convolved, dtype, (4, 32, 30, 30), (64, 32, 3, 3), (64, 1, 1))


def launches_for(dtype: str) -> dict[str, Launch]:
    """Even and ragged extents, long sums, few rows; every tile and convolutions of floats."""
    wide, chip = dtype in ("f64", "i64"), CHIPS[0]
    tiles = DOUBLE if wide else SINGLE
    made = [contract(matrices(511, 509, 257, dtype), chip)]
    made.append(contract(matrices(508, 512, 1 << 14, dtype), chip, tiles[0], 4))
    made.append(contract(matrices(1, 1000, 1000, dtype), chip))
    if dtype in ("f32", "f64"):
        made += [contract(matrices(512, 512, 512, dtype), chip, tile, 1) for tile in tiles]
        made.append(contract(matrices(508, 500, 260, dtype), chip, tiles[0], 1))
        made.append(contract(images(dtype), chip))
        made.append(contract(matrices(7, 1000, 1000, dtype), chip))
        turned = region(dense_transposed, dtype, (3, 1000), (1000, 1000), (1000,))
        made.append(contract(turned, chip))
    launches = [launch for part, _ in made for launch in part]
    return {f"kernel{number}": launch for number, launch in enumerate(launches)}


def assemble(launches: dict[str, Launch], chips: list[Chip], source: Chip) -> str:
    """The PTX for one chip, which each of the others runs with all sums in registers."""
    ptx = compile_ptx(launches, source)
    for chip in chips:
        cubin, reports = toolkit.assemble(ptx, chip)
        assert cubin[:4] == b"\x7fELF"
        assert set(reports) == set(launches)
        for name, report in reports.items():
            assert report.spills == 0, (name, chip)
            assert report.stack == 0, (name, chip)
            blocks = launches[name].threads * launches[name].resident
            assert report.registers <= min(MOST_REGISTERS, REGISTERS // blocks), (name, chip)
            assert report.shared <= 48 << 10, (name, chip)
            assert launches[name].shared <= SHARED[chip.name], (name, chip)

    return ptx


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(6))
def test_code_for_every_chip_keeps_all_sums_in_registers(turn: int) -> None:
    dtype = ("f32", "f64", "f16", "bf16", "i8", "i64")[turn]
    launches = dict(few(launches_for(dtype).items(), 1, turn))
    assemble(launches, few(CHIPS, 1, turn), CHIPS[0])


@pytest.mark.slow
@pytest.mark.parametrize(("turn", "dtype"), [(0, "f16"), (1, "bf16")])
def test_code_for_tensor_cores_keeps_all_sums_in_registers(turn: int, dtype: str) -> None:
    chip = CHIPS[1]
    turned = region(dense_transposed, dtype, (512, 512), (1024, 512), (1024,))
    cases = [(matrices(512, 512, 512, dtype), tile, 1) for tile in MATRICES]
    cases += [(matrices(511, 509, 257, dtype), MATRICES[0], 1), (turned,), (images(dtype),)]
    made = [contract(case[0], chip, *case[1:]) for case in few(cases, 1, turn)]
    launches = {f"kernel{number}": launch for number, ((launch,), _) in enumerate(made)}
    ptx = assemble(launches, few(CHIPS[1:], 1, turn), chip)
    assert all("= products_" in launch.text for launch in launches.values())
    entries = ptx.split(".entry ")[1:]
    assert len(entries) == len(launches)
    for entry in entries:
        assert f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32" in entry
        assert "ldmatrix.sync.aligned.m8n8.x4" in entry
        assert "local" not in entry


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(3))
def test_code_that_copies_in_the_background_keeps_all_sums_in_registers(turn: int) -> None:
    dtype = ("f32", "f64", "i32")[turn]
    given = (
        matrices(508, 500, 260, dtype),
        region(dense_transposed, "f32", (511, 257), (509, 257), (509,)),
    )
    tiles = tiles_for(form_of(given[0]), CHIPS[1], strict=False)
    cases = [(given[turn % 2], tile, 1) for tile in few(tiles, 1, turn)]
    if turn == 0:
        cases.append((images(dtype), tiles[0], 1))
    made = [contract(case[0], CHIPS[1], *case[1:]) for case in cases]
    launches = {f"kernel{number}": launch for number, ((launch, *_), _) in enumerate(made)}
    ptx = assemble(launches, few(CHIPS[1:], 1, turn), CHIPS[1])
    for entry in ptx.split(".entry ")[1:]:
        assert "cp.async.wait_group" in entry


@pytest.mark.slow
@pytest.mark.parametrize("turn", few(range(len(GROUPS)), 2))
def test_groups_of_warps_keep_all_sums_in_registers(turn: int) -> None:
    half = 2 * turn // len(GROUPS)
    chip, dtype = CHIPS[2], ("bf16", "f16")[half]
    turned = region(dense_transposed, dtype, (504, 512), (1000, 512), (1000,))
    given = turned if half else matrices(504, 1000, 512, dtype)
    ((launch, *rest), _) = contract(given, chip, GROUPS[turn], 1 + half)
    assert all(each.twin is None for each in rest)
    ptx = assemble({"kernel": launch}, [chip], chip)
    assert f"wgmma.mma_async.sync.aligned.m64n{GROUPS[turn].columns}k16.f32.{dtype}" in ptx
    assert ".target sm_90a" in ptx
    twin = launch.twin
    assert twin is not None
    assert (twin.blocks, twin.threads, twin.operands) == (
        launch.blocks,
        launch.threads,
        launch.operands,
    )
    assert twin.shared <= min(launch.shared, SHARED["sm_80"])
    portable = assemble({"kernel": twin}, [Chip("sm_120")], chip)
    assert "wgmma" not in portable
    assert ".target sm_90\n" in portable


@pytest.mark.slow
@pytest.mark.parametrize("turn", few(range(2), 1, 1))
def test_tf32_multiplies_on_tensor_cores_where_it_is_asked_for(turn: int) -> None:
    chip, sizes = CHIPS[2], ((504, 1000, 512), (511, 509, 257))[turn]
    given = matrices(*sizes)
    contract = Contract(given, form_of(given), chip, tf32=True)
    ((launch, *_), _) = contract.launches(TF32_GROUPS[turn], 1)
    ptx = assemble({"kernel": launch}, [chip], chip)
    assert f"m64n{TF32_GROUPS[turn].columns}k8.f32.tf32.tf32" in ptx
    twin = launch.twin
    assert twin is not None
    portable = assemble({"kernel": twin}, [Chip("sm_120")], chip)
    assert "tf32" not in portable
    assert "fma.rn.f32" in portable


def test_tf32_is_for_those_who_ask_and_can() -> None:
    form = form_of(matrices(1024, 1024, 1024))
    assert isinstance(cut(form, CHIPS[2], tf32=True).tile, Group)
    for options in ({}, {"tf32": True, "strict": True}):
        assert isinstance(cut(form, CHIPS[2], **options).tile, Tile)
    assert isinstance(cut(form, CHIPS[1], tf32=True).tile, Tile)
    shapes = [gc.spec((1024, 1024), "f32")] * 2
    for function, narrow in (
        (lambda x, w: np.tanh(x @ w), True),
        (lambda x, w: gc.exact(x) @ w, False),
        (lambda x, w: x @ gc.exact(np.tanh(w)), False),
    ):
        for precision in ("f32", "tf32"):
            given = {"target": "cuda:sm_90", "precision": precision}
            found = launches_of(function, tuple(shapes), **given).values()
            wanted = narrow and precision == "tf32"
            assert any("products_tf32(" in launch.text for launch in found) == wanted


def test_tensor_cores_are_used_where_they_are_and_may_be() -> None:
    form = form_of(matrices(1024, 1024, 1024, "bf16"))
    assert isinstance(cut(form, CHIPS[1]).tile, Matrix)
    assert isinstance(cut(form, CHIPS[2]).tile, Group)
    assert isinstance(cut(form_of(matrices(1024, 1001, 1024, "bf16")), CHIPS[2]).tile, Matrix)
    assert isinstance(cut(form, CHIPS[0]).tile, Tile)  # sm_75 knows no bf16
    assert isinstance(cut(form, CHIPS[1], strict=True).tile, Tile)
    assert isinstance(cut(form_of(matrices(1024, 1024, 1024)), CHIPS[1]).tile, Tile)
    ordered = contract_launches(matrices(1024, 1024, 1024, "bf16"), CHIPS[1], ordered=True)
    assert ordered is not None
    assert "products_" not in ordered[0][0].text


def count(pattern: str, text: str) -> int:
    return len(re.findall(pattern, text))


def test_inner_loops_multiply_and_read_sixteen_bytes_at_once() -> None:
    launches, _ = contract(matrices(1024, 1024, 1024), CHIPS[2], SINGLE[0], 1)
    ptx = compile_ptx({"kernel": launches[0]}, CHIPS[2])
    assert count(r"fma\.rn\.f32", ptx) == 8 * 8 * 8
    assert count(r"ld\.shared\.v4", ptx) == 8 * 4
    assert count(r"ld\.global\.v4", ptx) == 4  # once before the loop and once in it
    assert count(r"ld\.local|st\.local", ptx) == 0
    for text in re.findall(r"ld\.shared\S*", ptx):
        assert "v4" in text or text.startswith("ld.shared.f32")  # sums, on their way out


def test_tiles_fit_the_shape() -> None:
    def chosen(m: int, n: int, k: int) -> tuple[Tile, int]:
        made = cut(form_of(matrices(m, n, k)), CHIPS[2])
        return made.tile, made.splits

    largest, splits = chosen(4096, 4096, 4096)
    assert (largest.rows * largest.columns, splits) == (128 * 256, 1)
    small, splits = chosen(256, 256, 256)
    assert small.rows * small.columns < SINGLE[0].rows * SINGLE[0].columns
    assert splits <= 2
    assert chosen(64, 64, 1 << 16)[1] > 8
    low, _ = chosen(32, 8192, 1024)
    assert low.rows <= 32


@pytest.mark.parametrize(("m", "n"), [(1, 4096), (4096, 1), (8, 4096), (4096, 5)])
def test_few_rows_are_a_stream_of_the_other_operand(m: int, n: int) -> None:
    made = thin_cut(form_of(matrices(m, n, 4096)), CHIPS[2])
    assert made is not None
    assert isinstance(made.tile, Thin)
    assert made.m == min(m, n)
    assert made.blocks >= 128
    assert thin_cut(form_of(matrices(64, 64, 4096)), CHIPS[2]) is None


def test_every_part_of_a_split_sum_has_products() -> None:
    for k in (9, 33, 1000, 4097):
        for parts in range(1, 12):
            made = cut(form_of(matrices(16, 16, k)), CHIPS[2], SINGLE[0], parts)
            share = -(-made.pieces // made.splits)
            assert (made.splits - 1) * share < made.pieces <= made.splits * share
