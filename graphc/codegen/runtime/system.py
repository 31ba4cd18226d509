"""What native code asks of the system: threads, the clock, the core that it runs on."""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    I32,
    I64,
    PTR,
    VOID,
    Extern,
    Number,
    Pointer,
    Value,
    Writer,
    native,
)

LINE = "<8 x i64>"  # of a cache
MASK = 128  # bytes of a set of cores
_SIGNAL_SET = 128  # bytes

thread_create = Extern("pthread_create", I32, PTR, PTR, PTR, PTR)
thread_detach = Extern("pthread_detach", I32, PTR)
mutex_init = Extern("pthread_mutex_init", I32, PTR, PTR)
mutex_lock = Extern("pthread_mutex_lock", I32, PTR)
mutex_unlock = Extern("pthread_mutex_unlock", I32, PTR)
condition_init = Extern("pthread_cond_init", I32, PTR, PTR)
condition_wait = Extern("pthread_cond_wait", I32, PTR, PTR)
condition_signal = Extern("pthread_cond_signal", I32, PTR)
give_way = Extern("sched_yield", I32)
get_cores = Extern("sched_getaffinity", I32, I32, I64, PTR)
set_cores = Extern("sched_setaffinity", I32, I32, I64, PTR)
get_thread_cores = Extern("pthread_getaffinity_np", I32, PTR, I64, PTR)
set_thread_cores = Extern("pthread_setaffinity_np", I32, PTR, I64, PTR)
reallocate = Extern("realloc", PTR, PTR, I64)
_clock = Extern("clock_gettime", I32, I32, PTR)
_this_core = Extern("sched_getcpu", I32)
_fill_signals = Extern("sigfillset", I32, PTR)
_block_signals = Extern("pthread_sigmask", I32, I32, PTR, PTR)
_system_call = Extern("syscall", I64, I64, PTR, I64, I64, PTR, PTR, I64)
FUTEX_WAIT, FUTEX_WAKE = 0, 1

# The instruction that tells a core that it is spinning (LLVM intrinsics: no assembler is needed).
_pause_x86 = Extern("llvm.x86.sse2.pause", VOID)
_pause_arm = Extern("llvm.aarch64.isb", VOID, I32)


@native()
def pause(f: Writer) -> None:
    """Tell the core that this thread spins."""
    machine = f.module.triple.split("-")[0]
    if machine == "x86_64":
        _pause_x86(f)
    elif machine in ("aarch64", "arm64"):
        _pause_arm(f, 15)


@native()
def stream(f: Writer, target: Pointer, source: Pointer, lines: Number) -> None:
    """Copy lines of 64 bytes past the caches of this core, to where a line begins: for who reads
    them on another core. A locked instruction has to come before that is told."""
    with f.loop(0, lines) as line:
        place = line << 3  # in words
        line_of_source = f.new(LINE, f"load {LINE}, ptr {source.at(place).text}, align 1")
        past_caches = f"ptr {target.at(place).text}, align 64, !nontemporal !{{i32 1}}"
        f.do(f"store {LINE} {line_of_source.text}, {past_caches}")


@native(I64)
def now(f: Writer) -> None:
    """Nanoseconds of the monotonic clock."""
    time = f.slot(I64, 2)
    _clock(f, 6 if f.module.is_darwin else 1, time)
    f.give(time[0] * 1_000_000_000 + time[1])


def futex(f: Writer, word: Value, what: int, number: int, time: Value) -> None:
    """Sleep while a word of 32 bits has a value, or wake so many who do; in any process."""
    if f.module.is_linux:
        call = 202 if f.module.triple.startswith("x86_64") else 98
        _system_call(f, call, word, what, number, time, f.null(), 0)
    elif what == FUTEX_WAIT:
        give_way(f)


def core(f: Writer) -> Value:
    """The core that this thread runs on, or -1."""
    return _this_core(f).cast("sext", I64) if f.module.is_linux else Value(f, I64, "-1")


def without_core(f: Writer, cores: Value, number: Value) -> None:
    """Take a core out of a set."""
    word = number >> 6
    cores[word] = cores[word] & ~(Value(f, I64, "1") << (number & 63))


def start_thread(f: Writer, handle: Value, body: Value, argument: Value) -> Value:
    """Start a thread that does not run the process's signal handlers; 0, or what went wrong."""
    how = 3 if f.module.is_darwin else 2  # SIG_SETMASK
    signals, before = f.slot("i8", _SIGNAL_SET, 16), f.slot("i8", _SIGNAL_SET, 16)
    _fill_signals(f, signals)
    _block_signals(f, how, signals, before)
    failed = thread_create(f, handle, f.null(), body, argument)
    _block_signals(f, how, before, f.null())
    return failed
