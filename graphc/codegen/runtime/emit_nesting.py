"""The call entry for nested arguments and results.

`nested(self, args, count)` takes arguments apart, gives their arrays to `flat` and nests what it
answers.  `self` is a NumPy array whose words `graphc.runtime.call.nesting` fills.

A fetch takes one object: out of an argument or out of the object of an earlier fetch.  It has a
test, with two words of its own.

    0 an array: its type, a function that makes one of other objects or 0
    1 a container: its type, its length or -1
    2 the object itself
    3 a number: its type, a function that makes an array of it
    4 any container: its type, a function that makes the tuple of its children

Builds are a stack machine: each takes so many objects from the stack and leaves one there.

Objects taken out of containers are kept until the run is over: their containers may change when
the GIL is dropped, or when a key or an attribute runs Python code.  The answers are those of
`entry`; None also means another nesting.
"""

from __future__ import annotations

from graphc.codegen.llvm.writer import (
    I64,
    PTR,
    Extern,
    Local,
    Number,
    Pointer,
    Struct,
    Value,
    Writer,
    native,
)
from graphc.codegen.runtime.emit_entry import flat
from graphc.codegen.runtime.python_api import (
    call,
    drop,
    drop_all,
    error_clear,
    error_matches,
    error_occurred,
    get_attribute,
    get_of_dict,
    get_of_list,
    get_of_tuple,
    keep,
    kept,
    new_dict,
    new_list,
    new_tuple,
    set_in_dict,
    set_in_list,
    set_in_tuple,
)
from graphc.codegen.runtime.results import answer
from graphc.runtime.call.nesting import (
    ARGUMENT,
    ARRAY,
    ATTRIBUTE,
    CALL,
    CONTAINER,
    DICT,
    ITSELF,
    LIST,
    NOTHING,
    NUMBER,
    OF_DICT,
    OF_LIST,
    OF_TUPLE,
    RESULT,
    TUPLE,
)
from graphc.runtime.load.layouts import BuildWords, FetchWords, NestingWords
from graphc.seams.cpython import ObjectWords
from graphc.seams.numpy import ArrayWords

FETCHED, DIFFERS, FAILED, RAISED = range(4)


@native(PTR, is_public=True)
def nested(f: Writer, self: Struct[ArrayWords], args: Pointer, count: Number) -> None:
    """Run on nested arguments."""
    context = self.data.to(NestingWords)
    fetches, arrays, builds = context.fetches, context.arrays, context.builds
    objects, leaves, made = f.room(fetches), f.room(arrays), f.room(context.results)
    with f.when(count != context.arguments):
        keep(f, context.none)
        f.give(context.none)
    outcome = fetch_all(f, context, args, objects, leaves)
    with f.when(outcome != FETCHED):
        with f.when(outcome == RAISED):
            f.give(f.null())
        keep(f, context.none)
        f.give(context.none)
    code = flat(f, context.flat, leaves, arrays, made)
    drop_all(f, objects, fetches)
    with f.when((code != 0) | (builds == 0)):
        f.give(answer(f, context.flat, code, made))
    f.give(build_all(f, context, made, f.room(builds)))


# ------------------------------------------------------------------------- taking apart


@native(I64)
def fetch_all(
    f: Writer, context: Struct[NestingWords], args: Pointer, objects: Pointer, leaves: Pointer
) -> None:
    """Fetch all objects, which are kept, and the arrays among them; or none."""
    leaf, records = f.local(0), context.fetch_records.to(FetchWords)
    with f.loop(0, context.fetches) as k:
        record, place = records[k], objects.at(k)
        found = take(f, record, args, objects)
        with f.when(found.is_null):
            drop_all(f, objects, k)
            f.give(outcome_of_error(f, context))
        place.store(found)
        is_array, has_type = record.test == ARRAY, found.to(ObjectWords).type == record.wanted
        with f.when((is_array & has_type) == 0):
            outcome = check(f, record, place)
            with f.when(outcome != FETCHED):
                drop_all(f, objects, k + (outcome == DIFFERS).cast("zext", I64))
                with f.when(outcome == FAILED):
                    f.give(outcome_of_error(f, context))
                f.give(outcome)
        with f.when(is_array | (record.test == NUMBER)):
            leaves.at(leaf).store(place.load(PTR))
            leaf += 1
    f.give(FETCHED)


def take(f: Writer, record: Struct[FetchWords], args: Value, objects: Value) -> Value:
    """The object that a fetch takes, kept; or null."""
    parent = objects.at(record.parent)
    key, position = record.key, record.at("key").load(I64)
    found = f.local(f.null())
    with f.switch(record.how) as case:
        with case(ARGUMENT):
            found.set(kept(f, args.pointer(position)))
        with case(OF_DICT):
            found.set(kept(f, get_of_dict(f, parent.load(PTR), key)))
        with case(OF_TUPLE):
            found.set(kept(f, get_of_tuple(f, parent.load(PTR), position)))
        with case(OF_LIST):
            found.set(kept(f, get_of_list(f, parent.load(PTR), position)))
        with case(ATTRIBUTE):
            found.set(get_attribute(f, parent.load(PTR), key))
    return found.value


@native(I64)
def check(f: Writer, record: Struct[FetchWords], place: Pointer) -> None:
    """Whether an object that is no array is as it has to be, or can be made an array."""
    found, wanted, detail, test = place.load(PTR), record.wanted, record.detail, record.test
    has_type = found.to(ObjectWords).type == wanted
    with f.when(test == ITSELF):
        f.give((found == wanted).choose(FETCHED, DIFFERS))
    with f.when(test == CONTAINER):
        with f.when(has_type == 0):
            f.give(DIFFERS)
        with f.when(detail < 0):
            f.give(FETCHED)
        f.give((found.to(ObjectWords).length == detail).choose(FETCHED, DIFFERS))
    is_array = test == ARRAY
    with f.when((is_array & (detail == 0)) | ((is_array | has_type) == 0)):
        f.give(DIFFERS)
    converted = call(f, detail.cast("inttoptr", PTR), place, 1, f.null())
    drop(f, found)
    with f.when(converted.is_null):
        f.give(FAILED)
    place.store(converted)
    f.give(FETCHED)


@native(I64)
def outcome_of_error(f: Writer, context: Struct[NestingWords]) -> None:
    """What follows from an object that cannot be taken: Python looks again, or raises."""
    with f.when(error_occurred(f).is_some):
        with f.when(error_matches(f, context.errors) == 0):
            f.give(RAISED)
        error_clear(f)
    f.give(DIFFERS)


# ------------------------------------------------------------------------- nesting


@native(PTR)
def build_all(f: Writer, context: Struct[NestingWords], made: Pointer, stack: Pointer) -> None:
    """Nest the results; null if an error was raised."""
    depth, result = f.local(0), f.local(0)
    records = context.build_records.to(BuildWords)
    with f.loop(0, context.builds) as k:
        record = records[k]
        count, keys = record.taken, record.keys
        base = depth - count
        items, built = stack.at(base), f.local(f.null())
        with f.switch(record.how) as case:
            with case(RESULT):
                built.set(made.pointer(result))
                result += 1
            with case(NOTHING):
                keep(f, context.none)
                built.set(context.none)
            with case(DICT):
                build_dict(f, built, keys, count, items)
            with case(TUPLE):
                build_sequence(f, built, new_tuple, set_in_tuple, count, items)
            with case(LIST):
                build_sequence(f, built, new_list, set_in_list, count, items)
            with case(CALL):
                built.set(call(f, keys, items, count, f.null()))
                give_up(f, built, count, items)
        with f.when(built.is_null):
            drop_all(f, stack, depth)
            drop_all(f, made.at(result), context.results - result)
            f.give(f.null())
        items.store(built)
        depth.set(base + 1)
    f.give(stack.load(PTR))


def build_sequence(
    f: Writer, built: Local, new: Extern, put: Extern, count: Value, items: Value
) -> None:
    """A tuple or list of objects, whose references it takes; or null."""
    built.set(new(f, count))
    with f.when(built.is_some), f.loop(0, count) as k:
        put(f, built, k, items.pointer(k))


def build_dict(f: Writer, built: Local, keys: Value, count: Value, items: Value) -> None:
    """A dict of objects; or null."""
    built.set(new_dict(f))
    with f.when(built.is_some), f.loop(0, count) as k:
        status = set_in_dict(f, built, keys.pointer(k), items.pointer(k))
        with f.when(status != 0):
            drop(f, built)
            built.set(f.null())
            f.leave()
    give_up(f, built, count, items)


def give_up(f: Writer, built: Local, count: Value, items: Value) -> None:
    """What has been built has references of its own."""
    with f.when(built.is_some):
        drop_all(f, items, count)
