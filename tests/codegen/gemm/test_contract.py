"""The contraction core against NumPy: every data type, route, layout and split of the work."""

import ctypes
import functools
import mmap
import random
from itertools import pairwise, product

import contract_cores
import ml_dtypes
import numpy as np
import pytest
from contract_cores import NUMPY, WIDENED, Problem, call, core, link, linked_core, matrix
from effort import crossed, examples, slow
from guarded_arrays import guarded
from hypothesis import given
from hypothesis import strategies as st

from graphc.codegen import gemm as contract
from graphc.codegen.gemm import Dim, NormalForm, Plan
from graphc.codegen.gemm.layout import Flag, Word
from graphc.codegen.gemm.tile_choice import kind_of
from graphc.codegen.llvm.target import host, optimise_and_object
from graphc.tuning import chosen

SIZES = [1, 2, 3, 7, 13, 14, 15, 16, 17, 29, 31, 32, 33, 47, 64, 65]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt", "nnt", "ntt", "tnt", "ttt"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_every_transposition(dtype: str, layout: str) -> None:
    choose = random.Random(layout)
    for _ in range(25):
        m, n, k = (choose.choice(SIZES) for _ in range(3))
        matrix(dtype, m, n, k, layout).run()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [*NUMPY, *WIDENED])
def test_every_type_in_any_layout(dtype: str) -> None:
    for seed in range(40):
        choose = random.Random(seed)
        groups = {g: [choose.choice(SIZES[:12])] for g in "mnk"}
        groups["b"] = [choose.choice([2, 3])] if seed % 3 == 0 else []
        Problem(dtype, groups, seed).run()


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "i32", "i8_i32", "u8i8_i32"])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(300, 257, 700), slow(5, 700, 900), slow(700, 4, 300), slow(230, 40, 40)]
)
def test_more_than_one_block(dtype: str, m: int, n: int, k: int) -> None:
    for layout in ("nn", "tt"):
        matrix(dtype, m, n, k, layout).run()


def test_many_dims_per_group() -> None:
    for seed in range(150):
        choose = random.Random(seed)
        groups = {
            g: [choose.choice([1, 2, 3, 4, 5, 9]) for _ in range(choose.randint(0, 3))]
            for g in "mnk"
        }
        groups["b"] = [choose.choice([1, 2, 3]) for _ in range(choose.randint(0, 2))]
        Problem(
            choose.choice(["f32", "f64", "bf16", "u16", "u8_i32", "i8u8_i32"]), groups, seed
        ).run()


@examples(20, derandomize=True)
@given(data=st.data())
def test_random_contractions(data: st.DataObject) -> None:
    extents = st.lists(st.integers(1, 20), max_size=2)
    groups = {g: data.draw(extents, label=g) for g in "mnk"}
    groups["b"] = data.draw(st.lists(st.integers(1, 3), max_size=2), label="b")
    dtype = data.draw(st.sampled_from(["f32", "f64", "i8", "f16", *WIDENED]))
    Problem(dtype, groups, data.draw(st.integers(0, 10**6), label="seed")).run()


@pytest.mark.parametrize("dtype", ["f32", "f64", "i16", "bf16", "i8_i32", "u8i8_i32"])
def test_empty_sums_are_zero_and_empty_results_are_nothing(dtype: str) -> None:
    for m, n, k in [(3, 5, 0), (1, 40, 0), (40, 1, 0), (0, 5, 3), (5, 0, 3), (0, 0, 0)]:
        problem = Problem(dtype, {"b": [], "m": [m], "n": [n], "k": [k]}, 1, plain=True)
        plan = problem.run()
        assert plan.units == 0 or m * n > 0


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_result_does_not_depend_on_the_split(dtype: str) -> None:
    choose = random.Random(7)
    for m, n, k, layout in [
        (200, 300, 700, "nn"),
        (150, 90, 40, "tn"),
        (1, 900, 333, "nn"),
        (1, 900, 333, "nt"),
        (6, 400, 257, "nt"),
        (13, 800, 257, "nt"),
        (900, 70, 64, "nt"),
    ]:
        whole = matrix(dtype, m, n, k, layout)
        whole.run(threads=1)
        for threads in (2, 5):
            pieces = matrix(dtype, m, n, k, layout)

            def spans(plan: Plan) -> list[tuple[int, int, int]]:
                cuts = sorted({0, plan.units, *(choose.randint(0, plan.units) for _ in range(4))})
                found = [(lo, hi, k % 2) for k, (lo, hi) in enumerate(pairwise(cuts))]
                choose.shuffle(found)
                return found

            plan = pieces.run(spans, threads=threads)
            assert plan.units > 1 or m * n * k < 1 << 22
            np.testing.assert_array_equal(whole.result(), pieces.result())


def test_batches_are_units() -> None:
    problem = Problem("f32", {"b": [12], "m": [128], "n": [128], "k": [32]}, 1, plain=True)
    plan = problem.run(lambda plan: [(u, u + 1, u % 2) for u in range(plan.units)], threads=2)
    assert plan.units == 12


def test_packed_ahead() -> None:
    cases: list[tuple[dict[str, list[int]], bool]] = [
        ({"b": [], "m": [50], "n": [100], "k": [70]}, True),
        ({"b": [3], "m": [5], "n": [33], "k": [600]}, True),
        ({"b": [2], "m": [20], "n": [4, 9], "k": [3, 5]}, False),
        ({"b": [], "m": [1], "n": [65], "k": [40]}, True),
    ]
    dtypes = ["f32", "f64"]
    if contract.host_target().brain:  # elsewhere a copy would be as long as what is read
        dtypes.append("bf16")
    if contract.host_target().fast_bytes:
        dtypes += ["i8_i32", "u8_i32", "i8u8_i32", "u8i8_i32"]
    for dtype in dtypes:
        for seed, (groups, plain) in enumerate(cases):
            plan = Problem(dtype, groups, seed, plain).run(packed_b=True)
            assert plan.packed > 0
            assert plan.params[Word.FLAGS] & Flag.PACKED_B


@examples(8, derandomize=True)
@given(data=st.data())
def test_few_rows_times_panels(data: st.DataObject) -> None:
    """Panels are read as they lie, in blocks of many steps, however units are split."""
    dtypes = ["f32", "f64", "i8", "u16", "i8_i32", "u8_i32"]
    dtypes += ["bf16"] if contract.host_target().brain else []
    dtype = data.draw(st.sampled_from(dtypes), label="dtype")
    sizes = {"m": (1, 16), "n": (1, 200), "k": (1, 400)}
    groups = {g: [data.draw(st.integers(*ends), label=g)] for g, ends in sizes.items()}
    groups["m"] = data.draw(st.sampled_from([[1], groups["m"]]), label="rows")
    groups["b"] = data.draw(st.sampled_from([[], [2]]), label="batch")
    seed = data.draw(st.integers(0, 10**6), label="seed")
    plain = data.draw(st.booleans(), label="plain")
    results = []
    with chosen({"codegen.deepest_stream": data.draw(st.sampled_from([64, 4096]))}):
        for threads in (1, 2):
            problem = Problem(dtype, groups, seed, plain)
            plan = problem.run(
                lambda plan: [(u, u + 1, u % 2) for u in reversed(range(plan.units))],
                threads=threads,
                packed_b=True,
            )
            assert plan.packed > 0
            results.append(problem.result())
    np.testing.assert_array_equal(*results)


def test_convolution_reads_patches_in_place() -> None:
    images, channels, size, filters, window = 2, 3, 12, 8, 3
    generator = np.random.default_rng(0)
    image = generator.standard_normal((images, channels, size, size)).astype("f4")
    weight = generator.standard_normal((filters, channels, window, window)).astype("f4")
    for step in (1, 2):
        out = (size - window) // step + 1
        result = np.full((images, filters, out, out), np.nan, "f4")
        sc, so = [s // 4 for s in image.strides], [s // 4 for s in result.strides]
        form = NormalForm(
            "f32",
            (),
            (
                Dim(images, sc[0], 0, so[0]),
                Dim(out, sc[2] * step, 0, so[2]),
                Dim(out, sc[3] * step, 0, so[3]),
            ),
            (Dim(filters, 0, channels * window * window, so[1]),),
            (
                Dim(channels, sc[1], window * window),
                Dim(window, sc[2], window),
                Dim(window, sc[3], 1),
            ),
        )
        plan = contract.plan(form, contract.host_target())
        call(plan, core("f32")["graphc_contract_f32"], [image, weight, result])
        windows = np.lib.stride_tricks.sliding_window_view(image, (window, window), (2, 3))
        expected = np.einsum("nchwij,ocij->nohw", windows[:, :, ::step, ::step], weight)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_convolution_reads_every_second_pixel_as_a_vector(step: int) -> None:
    """The image is the right operand: rows of 1 to 40 pixels, `step` apart, of 3 by 2 windows."""
    channels, filters = 3, 5
    generator = np.random.default_rng(step)
    for out in (1, 2, 17, 31, 32, 33, 40):
        width = (out - 1) * step + 2
        image = generator.standard_normal((channels, 2 * step + 3, width)).astype("f4")
        weight = generator.standard_normal((filters, channels, 3, 2)).astype("f4")
        result = np.full((filters, 3, out), np.nan, "f4")
        sc = [s // 4 for s in image.strides]
        form = NormalForm(
            "f32",
            (),
            (Dim(filters, channels * 6, 0, 3 * out),),
            (Dim(3, 0, sc[1] * step, out), Dim(out, 0, step, 1)),
            (Dim(channels, 6, sc[0]), Dim(3, 2, sc[1]), Dim(2, 1, 1)),
        )
        plan = contract.plan(form, contract.host_target())
        call(plan, core("f32")["graphc_contract_f32"], [weight, image, result])
        windows = np.lib.stride_tricks.sliding_window_view(image, (3, 2), (1, 2))
        expected = np.einsum("chwij,ocij->ohw", windows[:, ::step, ::step], weight)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8"])
def test_panels_of_pixels_go_on_in_the_next_rows(dtype: str) -> None:
    """Panels begin and end anywhere in rows of 1 to 21 pixels, and nothing beside the image is
    read; numbers that do not count are not.
    """
    generator = np.random.default_rng(3)
    for step, side in product((1, 2, 3), ("behind", "before")):
        for out in (1, 2, 3, 7, 8, 13, 16, 21):
            width, height, rows = (out - 1) * step + 3, 9 * step + 2, 10
            image = guarded(
                generator.integers(-3, 4, (2, height, width)).astype(NUMPY[dtype]), side
            )
            weight = generator.integers(-3, 4, (40, 2, 2, 3)).astype(NUMPY[dtype])
            result = np.zeros((40, rows, out), NUMPY[dtype])
            form = NormalForm(
                dtype,
                (),
                (Dim(40, 12, 0, rows * out),),
                (Dim(rows, 0, width * step, out), Dim(out, 0, step, 1)),
                (Dim(2, 6, height * width), Dim(2, 3, width), Dim(3, 1, 1)),
            )
            with chosen({"codegen.lane_columns": 1 << 30, "codegen.lane_rows": 1 << 20}):
                plan = contract.plan(form, contract.host_target())
            assert plan.params[Word.FLAGS] & (Flag.PACK_B | Flag.LATE)
            call(plan, core(dtype)[f"graphc_contract_{dtype}"], [weight, image, result])
            numbers = (x.astype("i8" if dtype == "i8" else "f8") for x in (image, weight))
            image, weight = numbers
            windows = np.lib.stride_tricks.sliding_window_view(image, (2, 3), (1, 2))
            expected = np.einsum("chwij,ocij->ohw", windows[:, ::step, ::step], weight)
            np.testing.assert_array_equal(result.astype(expected.dtype), expected)


def runs_here(cpu: str) -> bool:
    """Whether this machine runs code for such an x86 machine."""
    return host().triple.startswith("x86") and (cpu != "x86-64-v4" or host().vector_bits == 512)


@pytest.mark.parametrize("cpu", ["x86-64-v4", *map(slow, ["x86-64-v3", "x86-64"])])
@pytest.mark.parametrize("dtype", ["f32", slow("f64")])
def test_windows_read_in_place_have_the_bits_of_copied_ones(dtype: str, cpu: str) -> None:
    """Weights in lanes: whole and partial panels, several blocks of rows and of k, odd numbers of
    pixels, results in rows and apart, images that end where the next page is closed.
    """
    from graphc.codegen.llvm.target import named

    if not runs_here(cpu):
        pytest.skip(f"needs a machine that runs code for {cpu}")
    hardware = contract.hardware_of(named(cpu))
    run = linked_core(dtype, named(cpu))[f"graphc_contract_{dtype}"]
    generator = np.random.default_rng(5)
    cases = [(16, 3, 7, 7), (31, 2, 5, 9), (300, 2, 6, 6), (15, 300, 3, 11), (64, 5, 1, 33)]
    cases += [(48, 3, 5, 9), (6, 40, 4, 4), (25, 3, 7, 3)]  # panels of one vector and of half
    cases += [(40, 3, 5, 9), (8, 3, 7, 7), (3, 90, 3, 5)]
    for (filters, channels, rows, out), step, apart in product(cases, (1, 2), (1, 2)):
        width, height = (out - 1) * step + 3, (rows - 1) * step + 2
        shapes = (channels, height, width), (filters, channels, 2, 3)
        image, weight = (
            guarded(generator.standard_normal(shape).astype(NUMPY[dtype]), side)
            for shape, side in zip(shapes, ("behind", "before"), strict=True)
        )
        image[-1, -1, -1] = np.nan
        form = NormalForm(
            dtype,
            (),
            (Dim(filters, channels * 6, 0, rows * out * apart),),
            (Dim(rows, 0, width * step, out * apart), Dim(out, 0, step, apart)),
            (Dim(channels, 6, height * width), Dim(2, 3, width), Dim(3, 1, 1)),
        )
        results = []
        for columns in (1, 1 << 30):
            numbers = {"codegen.lane_columns": columns, "codegen.window_rows": 1 << 20}
            with chosen(numbers | {"codegen.lane_rows": 1 << 20}):
                plan = contract.plan(form, hardware)
            assert bool(plan.params[Word.FLAGS] & Flag.LANES) is (columns == 1)
            results.append(guarded(np.zeros((filters, rows, out * apart), NUMPY[dtype]), "behind"))
            call(plan, run, [weight, image, results[-1]])
        assert results[0].tobytes() == results[1].tobytes()
        assert np.isfinite(results[0]).any()
        windows = np.lib.stride_tricks.sliding_window_view(image, (2, 3), (1, 2))
        expected = np.einsum("chwij,ocij->ohw", windows[:, ::step, ::step], weight)
        np.testing.assert_allclose(results[0][..., ::apart], expected, 1e-3, 1e-3)


@pytest.mark.parametrize("cpu", ["x86-64-v4", *map(slow, ["x86-64-v3", "x86-64"])])
@pytest.mark.parametrize("dtype", ["f32", slow("f64")])
def test_windows_as_rows_have_the_bits_of_a_matrix_of_them(dtype: str, cpu: str) -> None:
    """Whole and narrow panels, several blocks of k, any number of pixels, images that end where
    the next page is closed.
    """
    from graphc.codegen.llvm.target import named

    if not runs_here(cpu):
        pytest.skip(f"needs a machine that runs code for {cpu}")
    hardware = contract.hardware_of(named(cpu))
    run = linked_core(dtype, named(cpu))[f"graphc_contract_{dtype}"]
    generator = np.random.default_rng(7)
    cases = [(16, 3, 7, 7), (31, 2, 5, 9), (33, 9, 40, 11), (300, 120, 3, 5), (64, 5, 1, 34)]
    for (filters, channels, rows, out), step in product(cases, (1, 2)):
        width, height = (out - 1) * step + 3, (rows - 1) * step + 2
        shapes = (channels, height, width), (channels * 6, filters)
        image, weight = (
            guarded(generator.standard_normal(shape).astype(NUMPY[dtype]), "behind")
            for shape in shapes
        )
        windows = np.lib.stride_tricks.sliding_window_view(image, (2, 3), (1, 2))
        matrix = np.ascontiguousarray(np.moveaxis(windows[:, ::step, ::step], 0, 2))
        n, k = Dim(filters, 0, 1, 1), channels * 6
        pixels = Dim(rows, width * step, 0, out * filters), Dim(out, step, 0, filters)
        steps = (
            Dim(channels, height * width, 6 * filters),
            Dim(2, width, 3 * filters),
            Dim(3, 1, filters),
        )
        products = (
            (image, NormalForm(dtype, (), pixels, (n,), steps)),
            (
                matrix,
                NormalForm(
                    dtype, (), (Dim(rows * out, k, 0, filters),), (n,), (Dim(k, 1, filters),)
                ),
            ),
        )
        results = []
        for left, form in products:
            plan = contract.plan(form, hardware)
            assert bool(plan.params[Word.FLAGS] & Flag.WINDOWS) is (left is image)
            results.append(guarded(np.zeros((rows, out, filters), NUMPY[dtype]), "behind"))
            call(plan, run, [left, weight, results[-1]])
        assert results[0].tobytes() == results[1].tobytes()
        expected = matrix.reshape(rows, out, k) @ weight
        np.testing.assert_allclose(results[0], expected, 1e-3, 1e-3)


@pytest.mark.parametrize(("far", "channels"), [(0, 2), slow(0, 6), slow(0, 64), (0, 7), slow(1, 4)])
def test_windows_of_pairs_have_the_bits_of_a_matrix_of_them(far: int, channels: int) -> None:
    """Channels lie side by side; windows that have no pairs, or reach far, are copied."""
    hardware = contract.hardware_of(host())
    if not hardware.brain:
        pytest.skip("needs a CPU that multiplies pairs of bf16")
    run = core("bf16")["graphc_contract_bf16"]
    generator = np.random.default_rng(7)
    for (filters, rows, out), step in product(
        [(16, 7, 7), (24, 5, 9), (33, 40, 3), (70, 3, 34)], (1, 2)
    ):
        width, height = (out - 1) * step + 3, (rows - 1) * step + 2
        line, k = (width + far * hardware.l2 // 4) * channels, channels * 6
        image, weight = (
            guarded(generator.standard_normal(shape).astype(NUMPY["bf16"]), "behind")
            for shape in ((height * line,), (k, filters))
        )
        pixels = Dim(rows, line * step, 0, out * filters), Dim(out, channels * step, 0, filters)
        steps = (
            Dim(2, line, 3 * channels * filters),
            Dim(3, channels, channels * filters),
            Dim(channels, 1, filters),
        )
        lines = np.arange(rows)[:, None, None, None] * step + np.arange(2)[:, None]
        places = np.arange(out)[:, None, None] * step * channels + np.arange(3 * channels)
        matrix = guarded(image[(lines * line + places).reshape(rows * out, k)], "behind")
        n, flat = Dim(filters, 0, 1, 1), Dim(rows * out, k, 0, filters)
        results = []
        for left, dims in ((image, (pixels, (n,), steps)), (matrix, ((flat,), (n,), steps[:0]))):
            dims = dims if left is image else (*dims[:2], (Dim(k, 1, filters),))
            plan = contract.plan(NormalForm("bf16", (), *dims), hardware)
            near = left is image and channels % 2 == 0 and not far
            assert bool(plan.params[Word.FLAGS] & Flag.WINDOWS) is near
            results.append(guarded(np.zeros((rows * out, filters), NUMPY["bf16"]), "behind"))
            call(plan, run, [left, weight, results[-1]])
        assert results[0].tobytes() == results[1].tobytes()
        expected = matrix.astype("f4") @ weight.astype("f4")
        np.testing.assert_allclose(results[0].astype("f4"), expected, 2e-2, 2e-2 * k**0.5)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_windows_are_rows_where_they_need_not_be_copied_for_that(dtype: str) -> None:
    """Pairs of bf16 are copied either way, which is less work along rows of pixels."""
    from graphc.codegen.llvm.target import named

    filters = channels = 128
    rows, out = 8, 20
    form = NormalForm(
        dtype,
        (),
        (Dim(filters, channels * 9, 0, rows * out),),
        (Dim(rows, 0, out + 2, out), Dim(out, 0, 1, 1)),
        (Dim(channels, 9, (rows + 2) * (out + 2)), Dim(3, 3, out + 2), Dim(3, 1, 1)),
        prepacked=(True, False),
    )
    hardware = contract.hardware_of(named("znver4"))
    plan = contract.plan(form, hardware, epilogue=True, packed_b=dtype == "f32")
    assert plan.swapped is (dtype == "f32")
    assert bool(plan.params[Word.FLAGS] & Flag.WINDOWS) is (dtype == "f32")
    assert not plan.params[Word.FLAGS] & Flag.PACK_A


@pytest.mark.parametrize(
    ("given", "filters", "side", "along_filters"),
    [(160, 960, 7, False), (960, 160, 7, True), (384, 64, 14, False), (4096, 64, 14, True)],
)
def test_steps_of_four_are_weighed_against_what_is_stored_across(
    given: int, filters: int, side: int, along_filters: bool
) -> None:
    """Bytes are multiplied in a fourth of the steps, after which as many results are stored."""
    from graphc.codegen.llvm.target import named

    form = NormalForm(
        "i8u8_i32",
        (),
        (Dim(filters, given, 0, side**2),),
        (Dim(side**2, 0, 1, 1),),
        (Dim(given, 1, side**2),),
        prepacked=(True, False),
    )
    hardware = contract.hardware_of(named("znver4"))
    assert contract.plan(form, hardware, epilogue=True).swapped is along_filters


@pytest.mark.parametrize("shared", ["by-all", "by-none", "in-groups"])
@pytest.mark.parametrize("dtype", ["f32", slow("f64")])
def test_many_images_multiply_one_copy_of_weights(dtype: str, shared: str) -> None:
    """Of one block or several, in each of several calls; weights are copied for each group."""
    from graphc.codegen.llvm.target import named

    if not host().triple.startswith("x86"):
        pytest.skip("needs an x86 machine")
    hardware = contract.hardware_of(named("x86-64-v3"))
    run = linked_core(dtype, named("x86-64-v3"))[f"graphc_contract_{dtype}"]
    generator, out = np.random.default_rng(6), 21
    groups, images = {"by-all": (1, 5), "by-none": (5, 1), "in-groups": (3, 4)}[shared]
    for filters, channels in ((16, 3), (31, 40), (64, 90), (300, 4), (64, 400)):
        shapes = (images, groups, channels, out + 2), (groups, filters, channels, 3)
        image, weight = (
            guarded(generator.standard_normal(shape).astype(NUMPY[dtype]), side)
            for shape, side in zip(shapes, ("behind", "before"), strict=True)
        )
        one = channels * (out + 2), filters * 2 * out
        form = NormalForm(
            dtype,
            (
                Dim(groups, filters * channels * 3, *one),
                Dim(images, 0, groups * one[0], groups * one[1]),
            ),
            (Dim(filters, channels * 3, 0, 2 * out),),
            (Dim(out, 0, 1, 2),),
            (Dim(channels, 3, out + 2), Dim(3, 1, 1)),
        )
        results = []
        for columns in (1, 1 << 30):
            numbers = {"codegen.lane_columns": columns, "codegen.window_rows": 1 << 20}
            with chosen(numbers | {"codegen.lane_rows": 1 << 20}):
                plan = contract.plan(form, hardware)
            flags = plan.params[Word.FLAGS]
            assert bool(flags & Flag.LANES) is (columns == 1)
            assert not (shared == "by-none" and flags & Flag.SAME_A)
            assert plan.params[Word.A_RUN] == images
            shape = images, groups, filters, 2 * out
            results.append(guarded(np.zeros(shape, NUMPY[dtype]), "behind"))
            call(plan, run, [weight, image, results[-1]])
        assert results[0].tobytes() == results[1].tobytes()
        windows = np.lib.stride_tricks.sliding_window_view(image, 3, 3)
        expected = np.einsum("ngcwi,goci->ngow", windows, weight)
        np.testing.assert_allclose(results[0][..., ::2], expected, 1e-3, 1e-3)


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("cpu", ["x86-64-v4", slow("x86-64-v3")])
def test_windows_of_small_images_in_lanes_are_a_product_for_each(cpu: str, groups: int) -> None:
    """Where the images fill tiles of a few columns; bits are those of one product of them all."""
    from graphc.codegen.llvm.target import named

    if not runs_here(cpu):
        pytest.skip(f"{cpu} does not run here")
    hardware = contract.hardware_of(named(cpu))
    run = linked_core("f32", named(cpu))["graphc_contract_f32"]
    generator, kind, ways = np.random.default_rng(6), kind_of("f32", hardware), set()
    for out, images, filters in ((3, 40, 16), (14, 5, 16), (23, 4, 19), (29, 6, 5), (31, 9, 17)):
        channels = 7
        shapes = (images, groups, channels, out + 2), (groups, filters, channels, 3)
        image, weight = (
            guarded(generator.standard_normal(shape).astype(np.float32), side)
            for shape, side in zip(shapes, ("behind", "before"), strict=True)
        )
        one = channels * (out + 2), filters * out
        form = NormalForm(
            "f32",
            (Dim(groups, filters * channels * 3, *one),),
            (Dim(filters, channels * 3, 0, out),),
            (Dim(images, 0, groups * one[0], groups * one[1]), Dim(out, 0, 1, 1)),
            (Dim(channels, 3, out + 2), Dim(3, 1, 1)),
        )
        results = []
        for columns in (1, 1 << 30):
            numbers = {"codegen.lane_columns": columns, "codegen.window_rows": 1 << 20}
            with chosen(numbers | {"codegen.lane_rows": 1 << 20}):
                plan = contract.plan(form, hardware)
            apart = columns == 1 and kind.rows <= out < 2 * kind.columns
            assert plan.params[Word.N] == (out if apart else images * out)
            assert not apart or plan.params[Word.FLAGS] & Flag.LANES
            ways.add(plan.params[Word.N] == out)
            shape = images, groups, filters, out
            results.append(guarded(np.zeros(shape, np.float32), "behind"))
            call(plan, run, [weight, image, results[-1]])
        assert results[0].tobytes() == results[1].tobytes()
        windows = np.lib.stride_tricks.sliding_window_view(image, 3, 3)
        expected = np.einsum("ngcwi,goci->ngow", windows, weight)
        np.testing.assert_allclose(results[0], expected, 1e-3, 1e-3)
    assert ways == {False, True}


def test_not_a_number_and_infinity_are_honoured() -> None:
    for n in (1, 5, 40):
        a, b = np.zeros((20, 30), "f4"), np.ones((30, n), "f4")
        a[3, 4], b[4, 0] = 0.0, np.inf
        a[5, 6], a[7, 0] = np.nan, np.inf
        problem = matrix("f32", 20, n, 30)
        problem.data["a"][: a.size] = a.ravel()
        problem.data["b"][: b.size] = b.ravel()
        plan = contract.plan(problem.contraction(), contract.host_target())
        call(plan, core("f32")["graphc_contract_f32"], [problem.data[name] for name in "abc"])
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(problem.result(), a @ b)


EPILOGUE = """
define i32 @bias_and_residual(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {
entry:
  %tile = load ptr, ptr %bufs
  %cp = getelementptr ptr, ptr %bufs, i64 1
  %c = load ptr, ptr %cp
  %xp = getelementptr ptr, ptr %bufs, i64 2
  %bias = load ptr, ptr %xp
  %sp = getelementptr ptr, ptr %bufs, i64 3
  %sizes = load ptr, ptr %sp
  %n = load i64, ptr %sizes
  %mp = getelementptr i64, ptr %sizes, i64 1
  %m = load i64, ptr %mp
  %batch = load i64, ptr %params
  %j0p = getelementptr i64, ptr %params, i64 1
  %j0 = load i64, ptr %j0p
  %j1p = getelementptr i64, ptr %params, i64 2
  %j1 = load i64, ptr %j1p
  %ldp = getelementptr i64, ptr %params, i64 3
  %ld = load i64, ptr %ldp
  %rows = mul i64 %batch, %m
  br label %outer
outer:
  %i = phi i64 [ %lo, %entry ], [ %i2, %next ]
  %ci = icmp slt i64 %i, %hi
  br i1 %ci, label %row, label %done
row:
  %r = add i64 %rows, %i
  %cr = mul i64 %r, %n
  %tr = mul i64 %i, %ld
  br label %inner
inner:
  %j = phi i64 [ %j0, %row ], [ %j2, %body ]
  %cj = icmp slt i64 %j, %j1
  br i1 %cj, label %body, label %next
body:
  %ti = add i64 %tr, %j
  %tp = getelementptr float, ptr %tile, i64 %ti
  %v = load float, ptr %tp
  %bp = getelementptr float, ptr %bias, i64 %j
  %bv = load float, ptr %bp
  %s = fadd float %v, %bv
  %d = fpext float %s to double
  %oi = add i64 %cr, %j
  %op = getelementptr double, ptr %c, i64 %oi
  store double %d, ptr %op
  %j2 = add i64 %j, 1
  br label %inner
next:
  %i2 = add i64 %i, 1
  br label %outer
done:
  ret i32 0
}
"""


@functools.cache
def fused_kernel() -> int:
    """The f32 core with an epilogue that adds a bias per column and stores doubles."""
    epilogue = link(optimise_and_object([EPILOGUE], host()), ["bias_and_residual"], {})
    text = contract.emit_fused("with_bias", "f32", "bias_and_residual")
    code = optimise_and_object([text], host())
    return link(code, ["with_bias"], {**core("f32"), **epilogue})["with_bias"]


@pytest.mark.parametrize(
    ("batch", "m", "n", "k", "layout"),
    [
        (1, 5, 7, 9, "nn"),
        (3, 40, 65, 30, "nn"),
        (1, 1, 300, 50, "nn"),
        (1, 3, 90, 70, "nt"),
        (1, 500, 600, 600, "nn"),
        (2, 230, 33, 1100, "nn"),
        (1, 4, 6, 0, "nn"),
    ],
)
def test_epilogue_sees_every_element_once(batch: int, m: int, n: int, k: int, layout: str) -> None:
    problem = Problem("f32", {"b": [batch], "m": [m], "n": [n], "k": [k]}, 3, plain=True)
    if layout == "nt":
        problem = matrix("f32", m, n, k, layout)
    bias = np.random.default_rng(4).standard_normal(n).astype("f4")
    sizes = np.array([n, m], np.int64)
    result = np.full((batch, m, n), np.nan)
    plan = contract.plan(
        problem.contraction(), contract.host_target(), epilogue=True, extras=2, stage=True
    )
    assert not plan.swapped
    buffers = [problem.data["a"], problem.data["b"], result]
    half = plan.units // 2
    spans = [(0, half, 0), (half, plan.units, 1)]
    call(plan, fused_kernel(), buffers, [bias, sizes], spans)
    expected = problem.expected().reshape(result.shape) + bias
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


IN_PLACE = """
define i32 @double_plus_one(ptr %bufs, ptr %params, i64 %lo, i64 %hi, i64 %thread) {
entry:
  %tile = load ptr, ptr %bufs
  %j0p = getelementptr i64, ptr %params, i64 1
  %j0 = load i64, ptr %j0p
  %j1p = getelementptr i64, ptr %params, i64 2
  %j1 = load i64, ptr %j1p
  %ldp = getelementptr i64, ptr %params, i64 3
  %ld = load i64, ptr %ldp
  br label %outer
outer:
  %i = phi i64 [ %lo, %entry ], [ %i2, %next ]
  %row = mul i64 %i, %ld
  br label %inner
inner:
  %j = phi i64 [ %j0, %outer ], [ %j2, %inner ]
  %at = add i64 %row, %j
  %p = getelementptr float, ptr %tile, i64 %at
  %v = load float, ptr %p
  %d = fmul float %v, 2.0
  %s = fadd float %d, 1.0
  store float %s, ptr %p
  %j2 = add i64 %j, 1
  %cj = icmp slt i64 %j2, %j1
  br i1 %cj, label %inner, label %next
next:
  %i2 = add i64 %i, 1
  %ci = icmp slt i64 %i2, %hi
  br i1 %ci, label %outer, label %done
done:
  ret i32 0
}
"""


def test_epilogue_may_change_the_result_in_place() -> None:
    epilogue = link(optimise_and_object([IN_PLACE], host()), ["double_plus_one"], {})
    text = contract.emit_fused("doubled", "f32", "double_plus_one")
    code = optimise_and_object([text], host())
    kernel = link(code, ["doubled"], {**core("f32"), **epilogue})["doubled"]
    for m, n, k, layout in [
        (5, 7, 9, "nn"),
        (300, 400, 600, "nn"),
        (70, 1, 30, "nn"),
        (40, 90, 20, "nnt"),
        (1, 50, 20, "nt"),
        (6, 50, 20, "nt"),
    ]:
        problem = matrix("f32", m, n, k, layout)
        plan = contract.plan(problem.contraction(), contract.host_target(), epilogue=True)
        assert not plan.params[Word.FLAGS] & Flag.TILE
        call(plan, kernel, [problem.data[name] for name in "abc"])
        np.testing.assert_allclose(
            problem.result(), 2 * problem.expected() + 1, rtol=1e-4, atol=1e-4
        )


SHAPES = [
    (1, 70, 20, "nn"),
    (1, 40, 20, "nt"),
    (2, 10, 30, "nn"),
    (70, 64, 40, "nn"),
    (70, 40, 30, "tt"),
    (300, 640, 600, "nn"),
    (33, 10, 700, "nn"),
    (200, 7, 300, "tt"),
]


@pytest.mark.parametrize(("m", "n", "k", "layout"), SHAPES)
def test_core_of_the_parts_of_a_plan_runs_it(m: int, n: int, k: int, layout: str) -> None:
    problem = matrix("f32", m, n, k, layout)
    plan = contract.plan(problem.contraction(), contract.host_target())
    assert plan.parts != contract.Part.ALL
    entry = linked_core("f32", host(), plan.parts)[contract.contract_symbol("f32")]
    call(plan, entry, [problem.data[name] for name in "abc"])
    np.testing.assert_allclose(problem.result(), problem.expected(), rtol=1e-4, atol=1e-4)


def test_a_product_of_few_columns_needs_no_tile_that_is_wider() -> None:
    kind = kind_of("f32", contract.host_target())
    if kind.vectors == 1:
        pytest.skip("a panel is one vector")
    problem = matrix("f32", 33, kind.lanes, 700)
    plan = contract.plan(problem.contraction(), contract.host_target())
    made = [m.symbol for m in contract.core_of("f32", contract.host_target(), plan.parts)]
    kinds = {symbol.removeprefix("graphc_core_f32_").rstrip("0123456789") for symbol in made}
    assert "block" in kinds and not kinds & {"tile_", "copy_", "window_"}


def test_axes_of_a_plan_locate_every_dim() -> None:
    form = NormalForm(
        "f32",
        (Dim(3, 0, 20, 1000),),
        (Dim(5, 7, 0, 1),),
        (Dim(4, 0, 5, 50), Dim(2, 0, 1, 5)),
        (Dim(6, 1, 9, 0),),
    )
    plan = contract.plan(form, contract.host_target())
    assert plan.swapped
    sizes = {"batch": 1, "i": 1, "j": 1}
    for group, dims in (("batch", form.batch), ("m", form.m), ("n", form.n)):
        for ((which, divisor, extent),), dim in zip(plan.axes[group], dims, strict=True):
            assert extent == dim.extent
            sizes[which] = max(sizes[which], divisor * extent)
    assert sizes["batch"] * sizes["i"] * sizes["j"] == 3 * 5 * 4 * 2
    assert sizes["j"] == 5


def test_too_many_epilogue_operands() -> None:
    form = matrix("f32", 3, 3, 3).contraction()
    with pytest.raises(ValueError, match="at most"):
        contract.plan(form, contract.host_target(), epilogue=True, extras=1000)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "bf16"])
def test_nothing_is_read_behind_the_operands(dtype: str) -> None:
    """Operands end where their page ends, and the next page is closed."""
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.PAGESIZE
    size = np.dtype(NUMPY[dtype]).itemsize

    def closed(count: int) -> np.ndarray:
        pages = -(-count * size // page)
        area = mmap.mmap(-1, (pages + 1) * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(area))
        assert libc.mprotect(ctypes.c_void_p(base + pages * page), page, 0) == 0
        everything = np.frombuffer(area, np.uint8, pages * page)
        return everything[pages * page - count * size :].view(NUMPY[dtype])

    shapes = [(1, 1, 1), (5, 33, 7), (17, 3, 20), (1, 37, 29), (3, 19, 50), (40, 40, 40)]
    for m, n, k in [*shapes, (8, 8, 8), (9, 24, 5), (30, 4, 64)]:  # whole vectors in place
        for layout in ("nn", "nt", "tn", "tt"):
            problem = matrix(dtype, m, n, k, layout)
            for name, count in (("a", m * k), ("b", k * n), ("c", m * n)):
                fresh = closed(count)
                fresh[...] = problem.data[name][:count]
                problem.data[name] = fresh
            problem.run()


@pytest.mark.parametrize(
    ("cpu", "dtype"),
    crossed(
        ["x86-64", "x86-64-v3", "x86-64-v4", "znver4", "alderlake", "neoverse-n1"],
        ["f32", "bf16", "f16", "i8", "i8_i32", "u8i8_i32"],
    ),
)
def test_core_compiles_for_other_machines(cpu: str, dtype: str) -> None:
    from graphc.codegen.llvm.target import named

    for module in contract.core_of(dtype, contract.hardware_of(named(cpu))):
        assert len(contract.compile_core([module.text], module.inner, named(cpu))) > 500


PAIRS = [(m, n, k) for m in (9, 30) for n in (16, 24, 33, 70) for k in (1, 2, 31, 33, 64, 1100)]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt", "nnt"])
def test_pairs_of_bf16_are_exact_where_f32_is(layout: str) -> None:
    for seed, (m, n, k) in enumerate(PAIRS):
        problem = matrix("bf16", m, n, k, layout, seed)
        for name in "ab":
            values = np.random.default_rng(seed).integers(-2, 3, problem.data[name].size)
            problem.data[name][:] = values.astype(ml_dtypes.bfloat16)
        problem.run()
        expected = problem.expected().astype(np.float32).astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(problem.result(), expected)


def test_a_bf16_row_without_a_partner_meets_no_neighbour() -> None:
    problem = matrix("bf16", 20, 40, 7)
    problem.data["a"][20 * 7 :] = np.nan
    problem.data["b"][7 * 40 :] = np.nan
    problem.run()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "cpu"),
    crossed(
        ["f32", "f64", "f16", "i16", "i64", "i8_i32", "u8_i32", "i8u8_i32", "u8i8_i32"],
        ["x86-64-v3", "x86-64", "alderlake"],
    ),
)
def test_narrower_vectors_on_this_machine(
    dtype: str, cpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphc.codegen.llvm.target import named

    if not host().triple.startswith("x86"):
        pytest.skip("needs an x86 machine")
    if cpu == "alderlake" and "+avxvnni" not in host().features.split(","):
        pytest.skip("needs VNNI of 256 bits")
    hardware = contract.hardware_of(named(cpu))
    monkeypatch.setattr(contract, "host_target", lambda: hardware)
    narrow = functools.cache(lambda of: linked_core(of, named(cpu)))
    monkeypatch.setattr(contract_cores, "core", narrow)
    for seed in range(25):
        choose = random.Random(seed)
        groups = {g: [choose.choice(SIZES)] for g in "mnk"}
        Problem(dtype, {**groups, "b": []}, seed, plain=seed % 2 == 0).run()
    matrix(dtype, 100, 77, 300, "nt").run(packed_b=True)
    matrix(dtype, 2, 77, 300, "nt").run()
