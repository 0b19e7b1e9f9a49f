"""Implements `headspace.wrap`, which returns a proxy. Repeated calls for one loader share its loop."""

from __future__ import annotations

from _weakref import ref

from headspace import _settings
from headspace._loops import names
from headspace._loops.proxy import Proxy, make_proxy, replace_accelerate
from headspace._session import lifecycle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from headspace._loops.wrapped_loops import WrappedLoops

    T = TypeVar("T")

#: The unit of samples, which have a place of their own in the records.
SAMPLES = "samples"

#: Earlier calls of `wrap`, by wrapped object and arguments.
_earlier_calls: dict[tuple[object, ...], _EarlierCall] = {}


def wrap(  # noqa: PLR0913 - its arguments are the options of a loop, each with a default.
    iterable: T,
    *,
    mode: str | None = None,
    name: str | None = None,
    batch_size: int | None = None,
    samples: Callable[[Any], int] | None = None,
    unit: str = SAMPLES,
    epochs: int | None = None,
    total_steps: int | None = None,
    num_caches: int | None = None,
    return_caches_after: int | None = None,
    stop_after: int | None = None,
    probe_steps: int | None = None,
    stop_after_probe: bool | None = None,
    exactly_once: bool | None = None,
    what_if_steps: int | None = None,
    keep_data: bool | None = None,
) -> T:
    """Times an iterable of batches without changing it.

        loader = headspace.wrap(loader)

    The result behaves like the iterable: same batches, same order, same attributes, same type for
    ``isinstance``. With ``HEADSPACE=0``, the result *is* the iterable.

    Args:
        iterable: A torch ``DataLoader``, an SPDL pipeline, a generator, a list.
        mode: ``"measure"`` times the steps. ``"probe"`` also alternates windows of live and cached
            batches until the floor is known, then continues with live batches. ``"replay"`` switches
            to cached batches until the end. ``"whatif"`` also changes one stage after another for some
            steps, to measure what each change gains. By default ``HEADSPACE_MODE``, else ``"measure"``.
        name: Name of the loop in the records. By default the name of the type. Iterables that are
            wrapped one after another with the same name, such as a generator for each epoch, are one
            loop.
        batch_size: Samples per batch, for throughput. By default the loader's own ``batch_size``.
        samples: Returns the number of units in a batch, for throughput: samples, or what `unit` says. It is
            called for each of the first 64 batches, and later for at most every 17th batch and for at most
            1 % of the time, on the thread of the loop. No step contains this time. It should not wait for a
            device. If it raises an exception, training continues without this throughput.
        unit: What `samples` counts, for example ``"frames"`` or ``"tokens"``: 1 to 32 letters, digits and
            underscores, beginning with a letter.
        epochs: Number of epochs of the run. The verdict then also states how long the run takes, and how much
            of it changes would save. By default ``HEADSPACE_EPOCHS``, else unknown.
        total_steps: Number of batches of the run, instead of or in addition to `epochs`: the run ends at the
            first of both. By default ``HEADSPACE_TOTAL_STEPS``, else unknown.
        num_caches: Number of batches that a probe or a replay repeats. By default
            ``HEADSPACE_NUM_CACHES``, else 10.
        return_caches_after: Number of live batches before a replay. By default
            ``HEADSPACE_RETURN_CACHES_AFTER``, else 100.
        stop_after: Number of batches after which an epoch of a replay ends. By default
            ``HEADSPACE_STOP_AFTER``, else the length of the loader, if it has one.
        probe_steps: Maximum number of steps of a probe, at least 200. Fewer steps give a wider interval,
            or no number. By default ``HEADSPACE_PROBE_STEPS``, else at most 2400.
        stop_after_probe: Whether the current epoch ends when the probe is done, and every later epoch at
            its start. By default ``HEADSPACE_STOP_AFTER_PROBE``, else no.
        exactly_once: Whether an epoch with a probe or a what-if delivers every batch of the loader once and in order. It
            is then longer than ``len(loader)`` by the repeated batches. By default
            ``HEADSPACE_EXACTLY_ONCE``, else no: an epoch keeps its length, repeated batches replace
            live ones, and the last batches of the loader are left out. A loader without a length
            always delivers all batches.

        what_if_steps: Maximum number of steps of a what-if, at least 300. By default
            ``HEADSPACE_WHAT_IF_STEPS``, else 2000.
        keep_data: Whether a what-if trains on every input: calls of stages are then only delayed, or wait
            for each other, and no result is repeated. By default ``HEADSPACE_KEEP_DATA``, else no.

    Raises:
        TypeError: If ``iterable`` cannot be iterated, a number is not a whole number, or ``samples`` cannot
            be called.
        ValueError: If ``mode`` is not one of the four modes, the arguments contradict each other, or ``unit``
            is not a name.
    """
    if not _settings.enabled():
        return iterable
    wrapped: Any = iterable
    if issubclass(type(wrapped), Proxy):
        wrapped = wrapped._headspace_wrapped  # A loader that is wrapped twice is timed once.
    if type(wrapped).__module__ == "accelerate.data_loader":
        replace_accelerate()
    if not (hasattr(type(wrapped), "__iter__") or hasattr(type(wrapped), "__getitem__")):
        raise TypeError(
            f"`wrap` takes something that can be iterated, not `{type(wrapped).__name__}`"
        )
    _check_positive(
        batch_size=batch_size,
        epochs=epochs,
        total_steps=total_steps,
        probe_steps=probe_steps,
        what_if_steps=what_if_steps,
    )
    _check_unit(samples, unit, batch_size)
    _check_whole(
        num_caches=num_caches, return_caches_after=return_caches_after, stop_after=stop_after
    )
    # A setting never contradicts an argument: only arguments may be refused.
    if return_caches_after is None:
        return_caches_after = _settings.return_caches_after()
        if num_caches is not None:
            return_caches_after = max(return_caches_after, num_caches)
    if num_caches is None:
        num_caches = min(_settings.num_caches(), max(return_caches_after, 1))
    if stop_after is None and (setting := _settings.stop_after()) is not None:
        stop_after = max(setting, return_caches_after)
    options: dict[str, Any] = {
        "mode": _settings.mode() if mode is None else mode,
        "name": type(wrapped).__name__ if name is None else name,
        "batch_size": batch_size,
        "num_caches": num_caches,
        "return_caches_after": return_caches_after,
        "stop_after": stop_after,
        "probe_steps": _settings.probe_steps() if probe_steps is None else probe_steps,
        "stop_after_probe": (
            _settings.stops_after_probe() if stop_after_probe is None else stop_after_probe
        ),
        "exactly_once": _settings.exactly_once() if exactly_once is None else exactly_once,
        "what_if_steps": _settings.what_if_steps() if what_if_steps is None else what_if_steps,
        "keep_data": _settings.keeps_data() if keep_data is None else keep_data,
        "options_from": _settings.options_from(mode),
    }
    stated = _stated_facts(samples, unit, epochs, total_steps)
    proxy: T = _proxy_for(wrapped, options, stated, has_name=name is not None)
    return proxy


def _check_positive(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and (type(number) is not int or number < 1):
            raise ValueError(f"`{name}` is not a positive whole number: {number!r}")


def _check_whole(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and not hasattr(type(number), "__index__"):
            raise TypeError(f"`{name}` is not a whole number: {number!r}")


def _check_unit(samples: object, unit: object, batch_size: int | None) -> None:
    is_name = isinstance(unit, str) and unit.isascii() and unit.isidentifier() and len(unit) <= 32
    if not is_name or str(unit).startswith("_"):
        raise ValueError(
            f"`unit` is not a name of 1 to 32 letters, digits and underscores that begins with a letter: {unit!r}"
        )
    if samples is None:
        if unit != SAMPLES:
            raise ValueError(
                f"`unit` needs `samples`, the function that counts the {unit} of a batch"
            )
    elif not callable(samples):
        raise TypeError(f"`samples` is not a function of a batch: {samples!r}")
    elif unit == SAMPLES and batch_size is not None:
        raise ValueError("`batch_size` and `samples` both state the number of samples: give one")


def _stated_facts(
    samples: Callable[[Any], int] | None, unit: str, epochs: int | None, total_steps: int | None
) -> dict[str, Any]:
    """The facts that the user states: how many units a batch has, and how long the run is."""
    stated: dict[str, Any] = {"epochs": epochs, "total_steps": total_steps}
    if samples is not None:
        stated["count_units"] = samples
        if unit == SAMPLES:
            # The function replaces what the loader states.
            stated |= {"batch_size": None, "count_samples": None}
        else:
            stated["unit"] = unit
    return stated


def _proxy_for(
    wrapped: Any, options: dict[str, Any], stated: dict[str, Any], *, has_name: bool
) -> Any:
    """A proxy for `wrapped`, with the loops of an earlier call if this one is for the same loop."""
    # A program may write the function `samples` anew in each call, so the function does not distinguish loops.
    of_user = (fact for fact in stated.items() if fact[0] != "count_units")
    key = (None if has_name else id(wrapped), *options.values(), *of_user)
    options["stated"] = stated
    earlier = _earlier_calls.get(key)
    if earlier is not None and earlier.has_same_loop(wrapped):
        proxy = make_proxy(wrapped, earlier.options, earlier.loops_of_this_run())
    else:
        options["name"] = names.make_unique(options["name"])
        proxy = make_proxy(wrapped, options)
    # What is remembered keeps the cached batches of its loop. Those of a probe go when it ends.
    mode = options["mode"]
    if mode in (_settings.MEASURE, _settings.WHAT_IF) or (mode == _settings.PROBE and not has_name):
        _remember(key, proxy, has_name=has_name)
    return proxy


class _EarlierCall:
    """An earlier call of `wrap`.

    A loader that is wrapped again for each epoch is one loop with many epochs. It is recognised by the name
    that the user passed; without one, by the object's identity.
    """

    def __init__(self, proxy: Any, wrapped: ref[Any] | None) -> None:
        self.options: dict[str, Any] = proxy._headspace_options
        self.loops: WrappedLoops = proxy._headspace_loops
        self.proxy = ref(proxy)
        #: None where the name decides.
        self.wrapped = wrapped
        #: How many sessions had ended by then.
        self.sessions_ended = lifecycle.ended

    def has_same_loop(self, wrapped: Any) -> bool:
        """Whether `wrapped`, given with the same arguments, is iterated by the same loop."""
        if self.wrapped is not None:
            return self.wrapped() is wrapped
        proxy = self.proxy()
        return proxy is None or proxy._headspace_wrapped is wrapped

    def loops_of_this_run(self) -> WrappedLoops | None:
        """The loops; None if the loader of that name belonged to another run, and so is another loader."""
        is_known = self.wrapped is not None or self.sessions_ended == lifecycle.ended
        return self.loops if is_known else None


def _remember(key: tuple[object, ...], proxy: Any, *, has_name: bool) -> None:
    wrapped: ref[Any] | None = None
    if not has_name:
        forget = _earlier_calls.pop
        try:
            wrapped = ref(proxy._headspace_wrapped, lambda _: forget(key, None))
        except TypeError:  # A list, for example: its id may become another object's, unnoticed.
            return
    _earlier_calls[key] = _EarlierCall(proxy, wrapped)
