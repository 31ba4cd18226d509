"""The layouts of memory that Python and native code share, each declared once."""

from __future__ import annotations

from graphc.base.memory_layout import Address, Half, Layout, Word


class FrameWords(Layout):
    """The state of one run on one device; `bases` goes on as long as there are registers."""

    table: Address
    kernels: Address  # the address of each
    parameters: Address
    operands: Word  # the most of a row
    threads: Word
    cancel: Word
    row: Word  # that stopped
    kernel: Word  # of that row
    in_use: Word
    stacks: Address
    team: Address  # or null
    device: Word
    log: Address  # or null
    agenda: Address  # or null
    budget: Address  # of the bytes that the stacks of all devices may still take
    begun: Word  # in nanoseconds of the monotonic clock: an earlier Ctrl-C does not stop it
    bases: Address = 128


class StackWords(Layout):
    """What the gradient of a loop remembers: memory from malloc, bytes there, bytes in use."""

    memory: Address
    room: Word
    top: Word


class LogWords(Layout):
    """What a traced run notes; marks follow."""

    marks: Word
    room: Word


class MarkWords(Layout):
    """2 * row: the row begins; 2 * row + 1: its message is there, or its channel is free."""

    mark: Word
    nanoseconds: Word


class SpotWords(Layout, nbytes=256):
    """Where a thread sleeps."""

    parked: Half
    mutex: Word = 128
    condition: Word = 192


class TeamWords(Layout, nbytes=256):
    """A run on several devices; they follow."""

    devices: Word
    running: Word
    failed: Word
    status: Word
    row: Word
    channels: Address
    channel_count: Word
    stop: Address  # of a word that ends waits for other processes, or null


class DeviceWords(SpotWords, nbytes=256):
    """A device of a team, and where its thread sleeps."""

    frame: Address = 8
    first_row: Word
    worker: Word
    turn: Word


class ChannelWords(Layout, nbytes=128):
    """The place of one message: two cache lines, of which both ends write the first."""

    state: Word  # 0 empty, 1 full
    address: Address
    buffer: Address  # or null: the message is the address of the value
    source: Word
    target: Word
    agenda: Address  # of the receiver, or null
    segment: Word  # that the message begins
    record: Address  # where a copy of each message is kept, or null
    limit: Address
    link: Address  # to another process, or null: the other end is in this one
    moved: Word  # the bytes of all earlier messages of the link
    carrier: Address  # of what takes the bytes of the link elsewhere, or null: both ends see them
    bell: Address  # `CountWords` of the device at the other end of the link that waits, or null


class CountWords(Layout, nbytes=64):
    """A count that one thread waits for and others move, in any process: a cache line."""

    count: Word
    sleeps: Half  # whether who waits does
    waited: Word  # nanoseconds
    core: Word  # where it was moved last; they count from 1, and 0 is not known


class LinkWords(Layout, nbytes=128):
    """A way for bytes between two processes; room for one message follows.

    How many bytes were sent, over all messages, and how many were taken: both as `CountWords`.
    """

    sent: Word
    taker_sleeps: Half
    taker_waited: Word
    sender_core: Word
    taken: Word = 64
    sender_sleeps: Half
    sender_waited: Word
    taker_core: Word


class AgendaWords(Layout):
    """The segments of one run on one device; see `graphc.runtime.devices.ready_segments`."""

    words: Word  # of a bitmap
    open: Address  # a bit per segment that waits for no other
    counts: Address  # for how many others each segment waits
    rows: Address  # the first of each segment
    first: Address  # how the state begins
    state_bytes: Word
    bell: Address  # `CountWords`, moved when anything comes, or null: nothing comes over links
    heard: Word  # the count of the bell when links were looked at last
    links: Address  # `LinkedSegment` of each segment that begins with a message of a link
    link_count: Word
    here: Word = 128  # the state: a bit per segment that waits for no message (any more)


class LinkedSegment(Layout):
    """A segment that begins with a message of a link."""

    channel: Address
    segment: Word


class ContextWords(Layout):
    """What the native entry of one executable reads."""

    ready: Word
    parameters: Word
    results: Word
    drop_gil: Word
    frames: Word
    parameter_records: Address
    result_records: Address
    array_type: Address
    none: Address
    new_array: Address
    containers: Word
    homes: Address
    no_wait: Address  # to False
    true: Address
    donates: Word
    first_frame: Address = 128


class RecordWords(Layout):
    """A parameter or a result of the native entry."""

    dtype: Address
    rank: Word
    shape: Address
    size: Word
    taken: Word  # whether a result takes its memory; of a result: the parameter it takes, or -1


class HomeWords(Layout):
    """A container of variables; the methods of its lock if the run writes there, else null."""

    container: Address
    acquire: Address
    release: Address


class ContainerWords(Layout):
    """Who is in a container of variables."""

    readers: Word
    closed: Word


class NestingWords(Layout):
    """What the native entry for nested arguments reads."""

    flat: Address  # the context for flat ones
    arguments: Word
    fetches: Word
    fetch_records: Address
    arrays: Word
    builds: Word
    build_records: Address
    results: Word
    none: Address
    errors: Address  # the class of those after which Python looks again


class CallWords(Layout):
    """What the native `__call__` of compiled functions reads."""

    place: Word  # at which byte a function has the array of its direct entries, or None
    traces: Address  # of how many are active
    none: Address
    integer: Address  # the class of the answer of a failed run
    called: Address
    failed: Address


class DirectWords(Layout):
    """A native entry for calls like a recent one of a compiled function."""

    code: Address  # null behind the last one
    context: Address  # its self
    watched: Address  # of what must be as it was


class WatchedWords(Layout):
    """An object that a trace has read, in a cell or a dict."""

    holder: Address  # null behind the last one
    key: Address  # null of a cell
    value: Address


class FetchWords(Layout):
    """How one object is taken out of an argument."""

    parent: Word
    how: Word
    key: Address  # or a position
    test: Word
    wanted: Address
    detail: Word


class BuildWords(Layout):
    """How one object of the answer is made."""

    how: Word
    taken: Word
    keys: Address


class BellWords(Layout, nbytes=256):
    """What the client tells a worker process, and in the second half what that answers; how many
    requests there were, and how many answers, are as `CountWords`."""

    asked: Word
    worker_sleeps: Half
    worker_waited: Word
    client_core: Word
    program: Word  # to run, or -1: read the socket
    step: Word
    done: Word = 128
    client_sleeps: Half
    client_waited: Word
    worker_core: Word
    status: Word
    row: Word
    beat: Word  # goes on as long as the worker does
    sent: Word  # bytes through links, by the programs that it has open
    links: Word  # rows of the table of links that follows


class LinkRow(Layout):
    """A link of a worker: where it lies, and the tasks that it joins, of which -1 is the client."""

    descriptor: Word  # of the worker, of the memory that it lies in
    at: Word  # from its start
    source: Word
    target: Word
