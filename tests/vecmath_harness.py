"""Compiles one vector math function to a loop over arrays, with nothing but llvmlite.

It emits the scalar expression once inside a counted loop and leaves vectorising to LLVM, so it
checks what the functions compute independently of the product's emitters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from graphc.codegen.loops import Expr, Scalars, postorder
from graphc.ir.types import BOOL, F32, F64, DType

WORD = ir.IntType(64)
_INTRINSIC = {"fma": "fma", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc"}
_INTRINSIC |= {"rint": "rint", "abs": "fabs", "min": "minimum", "max": "maximum"}
_PLAIN = {"add": "add", "sub": "sub", "mul": "mul", "and": "and_", "or": "or_", "xor": "xor"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def llvm_type(dtype: DType) -> ir.Type:
    if dtype is BOOL:
        return ir.IntType(1)
    if dtype.is_float:
        return ir.FloatType() if dtype is F32 else ir.DoubleType()
    return ir.IntType(dtype.bits)


def _literal(expr: Expr) -> ir.Constant:
    kind = llvm_type(expr.dtype)
    if not expr.dtype.is_float:
        return ir.Constant(kind, expr.data)
    return ir.Constant(kind, float("nan") if expr.data == "nan" else float.fromhex(expr.data))


class Emitter:
    """Emits expressions at the builder's position; `values` starts with the inputs."""

    def __init__(self, builder: ir.IRBuilder, values: dict[Expr, ir.Value]) -> None:
        self.builder = builder
        self.values = values

    def emit(self, root: Expr) -> ir.Value:
        for expr in postorder([root]):
            if expr not in self.values:
                operands = [self.values[a] for a in expr.args]
                self.values[expr] = self.one(expr, operands)
        return self.values[root]

    def one(self, expr: Expr, x: list[ir.Value]) -> ir.Value:
        op, b = expr.op, self.builder
        operand = expr.args[0].dtype if expr.args else expr.dtype
        if op == "const":
            return _literal(expr)
        if op in _COMPARE:
            return self.compare(op, operand, x)
        if op == "select":
            return b.select(*x)
        if op == "bitcast":
            return b.bitcast(x[0], llvm_type(expr.dtype))
        if op == "cast":
            return self.cast(x[0], operand, expr.dtype)
        if operand.is_float and op in _INTRINSIC:
            return self.intrinsic(_INTRINSIC[op], x)
        if op == "div":
            return b.fdiv(*x)
        if op == "neg":
            return b.fneg(x[0]) if operand.is_float else b.neg(x[0])
        if op == "not":
            return b.not_(x[0])
        if op == "shl":
            return b.shl(*x)
        if op == "shr":
            return b.ashr(*x) if operand.kind == "i" else b.lshr(*x)
        if op == "clz":
            return b.ctlz(x[0], ir.Constant(ir.IntType(1), 0))
        return getattr(b, ("f" if operand.is_float else "") + _PLAIN[op])(*x)

    def compare(self, op: str, operand: DType, x: list[ir.Value]) -> ir.Value:
        b, sign = self.builder, _COMPARE[op]
        if not operand.is_float:
            return (b.icmp_signed if operand.kind == "i" else b.icmp_unsigned)(sign, *x)
        return (b.fcmp_unordered if op == "ne" else b.fcmp_ordered)(sign, *x)

    def cast(self, x: ir.Value, source: DType, target: DType) -> ir.Value:
        b, kind = self.builder, llvm_type(target)
        if source.is_float and target.is_float:
            return b.fpext(x, kind) if target is F64 else b.fptrunc(x, kind)
        if source.is_float:
            return b.fptosi(x, kind) if target.kind == "i" else b.fptoui(x, kind)
        if target.is_float:
            return b.sitofp(x, kind) if source.kind == "i" else b.uitofp(x, kind)
        if target.bits < source.bits and source is not BOOL:
            return b.trunc(x, kind)
        if target.bits == source.bits:
            return x
        return b.sext(x, kind) if source.kind == "i" else b.zext(x, kind)

    def intrinsic(self, name: str, x: list[ir.Value]) -> ir.Value:
        kind = x[0].type
        full = f"llvm.{name}.{'f32' if isinstance(kind, ir.FloatType) else 'f64'}"
        module = self.builder.module
        function = module.globals.get(full)
        if function is None:
            function = ir.Function(module, ir.FunctionType(kind, [kind] * len(x)), full)
        return self.builder.call(function, x)


def module_of(name: str, function: Callable[..., Expr], dtype: DType, arity: int) -> ir.Module:
    """void name(n, out, in0, ...): out[i] = function(in0[i], ...)."""
    module = ir.Module(name)
    kind = llvm_type(dtype)
    pointer = kind.as_pointer()
    entry = ir.Function(
        module, ir.FunctionType(ir.VoidType(), [WORD] + [pointer] * (arity + 1)), name
    )
    for argument in entry.args[1:]:
        argument.add_attribute("noalias")
    start, body, done = (entry.append_basic_block(n) for n in ("entry", "body", "done"))
    ir.IRBuilder(start).branch(body)
    builder = ir.IRBuilder(body)
    index = builder.phi(WORD)
    scalars = Scalars()
    inputs = [scalars.make("reg", dtype, (), ("in", k)) for k in range(arity)]
    loaded = [builder.load(builder.gep(p, [index]), typ=kind) for p in entry.args[2:]]
    result = Emitter(builder, dict(zip(inputs, loaded, strict=True))).emit(
        function(scalars, *inputs)
    )
    builder.store(result, builder.gep(entry.args[1], [index]))
    after = builder.add(index, ir.Constant(WORD, 1))
    index.add_incoming(ir.Constant(WORD, 0), start)
    index.add_incoming(after, body)
    builder.cbranch(builder.icmp_unsigned("<", after, entry.args[0]), body, done)
    ir.IRBuilder(done).ret_void()
    return module


def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    if "+avx512f" in features:
        features += ",-prefer-256-bit"
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True
    )


class Compiled:
    """A function over arrays: call it with NumPy arrays of its float type."""

    def __init__(self, name: str, function: Callable[..., Expr], dtype: DType, arity: int) -> None:
        machine = _machine()
        module = module_of(name, function, dtype, arity)
        module.triple = llvm.get_default_triple()
        module.data_layout = str(machine.target_data)
        parsed = llvm.parse_assembly(str(module))
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = True
        options.loop_interleaving = True
        passes = llvm.create_pass_builder(machine, options)
        passes.getModulePassManager().run(parsed, passes)
        self.text = str(parsed)
        self.assembly = machine.emit_assembly(parsed)
        self.engine = llvm.create_mcjit_compiler(parsed, machine)
        self.engine.finalize_object()
        kinds = [ctypes.c_int64] + [ctypes.c_void_p] * (arity + 1)
        address = self.engine.get_function_address(name)
        self.entry = ctypes.CFUNCTYPE(None, *kinds)(address)
        self.numpy = dtype.numpy

    def __call__(self, *arrays: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        inputs = [np.ascontiguousarray(a, self.numpy) for a in arrays]
        out = np.empty_like(inputs[0]) if out is None else out
        self.entry(out.size, out.ctypes.data, *[a.ctypes.data for a in inputs])
        return out


def operations(function: Callable[..., Expr], dtype: DType, arity: int) -> int:
    """How many instructions the expression is (literals not counted)."""
    scalars = Scalars()
    inputs = [scalars.make("reg", dtype, (), ("in", k)) for k in range(arity)]
    return sum(e.op not in ("const", "reg") for e in postorder([function(scalars, *inputs)]))
