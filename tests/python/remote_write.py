"""Translates OTLP messages to Prometheus remote write, for a Prometheus without an OTLP receiver.

Debian's build of Prometheus has no OTLP receiver. Its remote-write receiver accepts the same series,
including native histograms. The rules are those of Prometheus' own `otlptranslator` and of
OpenTelemetry's "Prometheus and OpenMetrics compatibility", with the suffixes that the default strategy
(`UnderscoreEscapingWithSuffixes`) adds:

- The words of a metric's name are joined by `_`. The unit follows, spelled out, unless it is in the name
  already. A monotonic sum ends in `_total`, and a gauge with the unit `1` in `_ratio`.
- Other characters in the name of a label become `_`. `job` is the service, and `instance` its instance.
- Other attributes of the resource are not labels of the series. `target_info` has them once.
- An exponential histogram becomes a native one, whose bucket numbers are higher by one.

This code follows those rules only. It shares no code with the exporter that it tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

UNITS = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "",
    "%": "percent",
}
PER_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}

#: The used part of Prometheus' `prompb`: message, field, number, type, and whether the field is repeated.
_FIELDS = [
    ("Label", "name", 1, "STRING", False),
    ("Label", "value", 2, "STRING", False),
    ("Sample", "value", 1, "DOUBLE", False),
    ("Sample", "timestamp", 2, "INT64", False),
    ("BucketSpan", "offset", 1, "SINT32", False),
    ("BucketSpan", "length", 2, "UINT32", False),
    ("Histogram", "count_int", 1, "UINT64", False),
    ("Histogram", "sum", 3, "DOUBLE", False),
    ("Histogram", "schema", 4, "SINT32", False),
    ("Histogram", "zero_threshold", 5, "DOUBLE", False),
    ("Histogram", "zero_count_int", 6, "UINT64", False),
    ("Histogram", "positive_spans", 11, "BucketSpan", True),
    ("Histogram", "positive_deltas", 12, "SINT64", True),
    ("Histogram", "timestamp", 15, "INT64", False),
    ("TimeSeries", "labels", 1, "Label", True),
    ("TimeSeries", "samples", 2, "Sample", True),
    ("TimeSeries", "histograms", 4, "Histogram", True),
    ("WriteRequest", "timeseries", 1, "TimeSeries", True),
]


def _write_request() -> Any:
    """The class of a remote-write request."""
    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="remote.proto", package="r", syntax="proto3")
    messages = {}
    for message in dict.fromkeys(row[0] for row in _FIELDS):
        messages[message] = file.message_type.add(name=message)
    for message, name, number, kind, repeats in _FIELDS:
        field = messages[message].field.add(name=name, number=number)
        field.label = proto.LABEL_REPEATED if repeats else proto.LABEL_OPTIONAL
        if kind in messages:
            field.type, field.type_name = proto.TYPE_MESSAGE, f".r.{kind}"
        else:
            field.type = getattr(proto, f"TYPE_{kind}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("r.WriteRequest"))


WriteRequest = _write_request()


def name_of(name: str, unit: str, *, counter: bool, gauge: bool) -> str:
    """The name of a metric in Prometheus."""
    tokens = re.findall(r"[a-zA-Z0-9:]+", name)
    main, _, per = (part.strip() for part in unit.partition("/"))
    main = "" if "{" in main else UNITS.get(main, main)
    per = "" if "{" in per or not per else f"per_{PER_UNITS.get(per, per)}"
    for suffix in (main, per):
        suffix = re.sub(r"[^a-zA-Z0-9:]+", "_", suffix).strip("_")
        if suffix and suffix not in tokens:
            tokens.append(suffix)
    if counter:
        tokens = [token for token in tokens if token != "total"] + ["total"]
    if gauge and unit == "1":
        tokens = [token for token in tokens if token != "ratio"] + ["ratio"]
    return "_".join(tokens)


def label_of(name: str) -> str:
    """The name of a label in Prometheus."""
    name = re.sub(r"[^a-zA-Z0-9]+", "_", name)
    return f"key_{name}" if name[0].isdigit() else name


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    found = getattr(value, kind)
    return str(found).lower() if kind == "bool_value" else str(found)


def _histogram(into: Any, point: Any) -> None:
    """Writes an exponential histogram as a native histogram."""
    into.count_int, into.sum, into.zero_count_int = point.count, point.sum, point.zero_count
    into.schema, into.zero_threshold = point.scale, point.zero_threshold
    assert -4 <= point.scale <= 8, "finer and coarser ones have to be made fit"
    assert not point.negative.bucket_counts
    counts = list(point.positive.bucket_counts)
    if counts:
        # Bucket i is (b^i, b^(i+1)] in OTLP, and (b^(i-1), b^i] here.
        into.positive_spans.add(offset=point.positive.offset + 1, length=len(counts))
        into.positive_deltas.extend(
            count - before for before, count in zip([0, *counts], counts, strict=False)
        )


def _series(metric: Any) -> Iterator[tuple[str, Any, bool]]:
    """Name and points of a metric, and whether the points are histograms."""
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind)
    assert kind in ("gauge", "sum", "exponential_histogram"), kind
    if kind != "gauge":
        assert data.aggregation_temporality == 2, "only cumulative ones are taken"
    counter = kind == "sum" and data.is_monotonic
    name = name_of(metric.name, metric.unit, counter=counter, gauge=kind == "gauge")
    for point in data.data_points:
        yield name, point, kind == "exponential_histogram"


def translate(requests: Iterable[Any]) -> Any:
    """Combines the requests of OTLP exporters into one remote-write request."""
    write = WriteRequest()
    for request in requests:
        for part in request.resource_metrics:
            resource = {pair.key: _text(pair.value) for pair in part.resource.attributes}
            own = {
                "job": "/".join(
                    resource[key]
                    for key in ("service.namespace", "service.name")
                    if key in resource
                ),
                "instance": resource["service.instance.id"],
            }
            latest = 0
            for metric in (metric for scope in part.scope_metrics for metric in scope.metrics):
                for name, point, native in _series(metric):
                    labels = {label_of(pair.key): _text(pair.value) for pair in point.attributes}
                    assert len(labels) == len(point.attributes), "two attributes of one name"
                    series = _labelled(write, name, {**labels, **own})
                    at = point.time_unix_nano // 1_000_000
                    latest = max(latest, at)
                    if native:
                        _histogram(series.histograms.add(timestamp=at), point)
                    else:
                        series.samples.add(value=point.as_double, timestamp=at)
            info = {label_of(k): v for k, v in resource.items() if not k.startswith("service.n")}
            info.pop("service_instance_id", None)
            series = _labelled(write, "target_info", {**info, **own})
            series.samples.add(value=1, timestamp=latest)
    return write


def _labelled(write: Any, name: str, labels: dict[str, str]) -> Any:
    series = write.timeseries.add()
    for key, value in sorted({"__name__": name, **labels}.items()):
        series.labels.add(name=key, value=value)
    return series


def snappy(data: bytes) -> bytes:
    """Encodes data in Snappy format without compression: the length, then literals."""
    length, head = len(data), bytearray()
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    for start in range(0, len(data), 1 << 16):
        piece = data[start : start + (1 << 16)]
        head += bytes([61 << 2]) + (len(piece) - 1).to_bytes(2, "little") + piece
    return bytes(head)
