"""Sampled stacks as OTLP profiles, which are sent on request."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from otlp_collectors import attributes, grpc_collector, http_collector
from running import Programs
from test_stacks import line_of, ran


def samples(request: Any) -> Counter[tuple[str, str, int]]:
    """Nanoseconds by stage, and by function and line of the innermost call."""
    tables = request.dictionary
    # The first entry of a table means "none".
    assert (tables.string_table[0], tables.stack_table[0].location_indices) == ("", [])
    found: Counter[tuple[str, str, int]] = Counter()
    for resource in request.resource_profiles:
        assert attributes(resource.resource.attributes)["service.name"] == "trainer"
        for scope in resource.scope_profiles:
            assert scope.scope.name == "headspace"
            for profile in scope.profiles:
                unit = tables.string_table[profile.sample_type.unit_strindex]
                assert unit == "nanoseconds"
                for sample in profile.samples:
                    stack = tables.stack_table[sample.stack_index]
                    line = tables.location_table[stack.location_indices[0]].lines[0]
                    function = tables.function_table[line.function_index]
                    stage = tables.attribute_table[sample.attribute_indices[0]]
                    assert tables.string_table[stage.key_strindex] == "headspace.stage"
                    name = tables.string_table[function.name_strindex]
                    found[stage.value.string_value, name, line.line] += sum(sample.values)
    return found


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json", "grpc"])
def test_the_slow_line_arrives_in_profiles(protocol: str, program: Programs) -> None:
    serve: Any = grpc_collector if protocol == "grpc" else http_collector
    with serve() as received:
        env = {
            "HEADSPACE_EXPORT": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{received.port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_PROFILES_EXPORTER": "otlp",
            "OTEL_SERVICE_NAME": "trainer",
        }
        run = ran(program, "inline", "sleep", env=env)

    found: Counter[tuple[str, str, int]] = Counter()
    for request in received.profiles:
        found.update(samples(request))
    ((place, function, line), _), *_ = found.most_common()
    assert (place, function, line) == ("load", "sleep", line_of("sleep"))
    stacks = run.kind("stacks")[-1]["stacks"]
    assert found.total() == pytest.approx(1e9 * sum(stack["seconds"] for stack in stacks), rel=1e-6)


def test_without_the_request_no_profile_is_sent(program: Programs) -> None:
    with http_collector() as received:
        env = {
            "HEADSPACE_EXPORT": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{received.port}",
        }
        ran(program, "inline", "sleep", steps=100, env=env)
    assert received.metrics
    assert received.profiles == []
