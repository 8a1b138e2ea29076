"""The names under which workers show their numbers to Prometheus: what alarms and dashboards rest on.

A counter's name ends in `_total`; a histogram is asked by `_bucket`, `_sum` and `_count`. Every worker adds the label
`stage`. Base units: seconds, bytes.
"""

from __future__ import annotations

import enum

import msgspec


class MetricKind(enum.Enum):
    """Prometheus's own kinds."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(msgspec.Struct, frozen=True):
    """One number; `labels` beside `stage`."""

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()


_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

METRICS = {
    metric.name: metric
    for metric in (
        # every stage
        Metric("headrace_consumer_lag_records", _GAUGE, "records not read yet", ("topic", "partition")),
        Metric("headrace_commit_age_seconds", _GAUGE, "since the last commit, while input waits", ("partition",)),
        Metric(
            "headrace_service_away_seconds",
            _GAUGE,
            "how long it has not answered; 0 while it does",
            ("service",),
        ),
        Metric("headrace_dead_letters_total", _COUNTER, "records given up", ("error",)),
        # owner
        Metric("headrace_partitions", _GAUGE, "partitions of the topics"),
        Metric("headrace_partitions_owned", _GAUGE, "partitions whose owner this worker is"),
        Metric("headrace_partitions_standby", _GAUGE, "partitions whose table this worker follows, caught up"),
        Metric("headrace_owner_fenced_total", _COUNTER, "commits refused because another owner had taken over"),
        Metric(
            "headrace_eligibility_lag_seconds",
            _HISTOGRAM,
            "from when a host could be asked to the grant for its best URL: high, normal or low",
            ("priority",),
        ),
        Metric(
            "headrace_url_rows_refused_total", _COUNTER, "rows of the URL store that no owner wrote, read as absent"
        ),
        Metric("headrace_admission_seconds", _HISTOGRAM, "from a URL's discovery to its durable row"),
        Metric("headrace_leases_total", _COUNTER, "leases granted", ("kind",)),
        Metric("headrace_leases_lost_total", _COUNTER, "leases that expired without a result, or were never stored"),
        Metric("headrace_grants_stopped", _GAUGE, "1 while nothing is granted, by what stops it", ("limit",)),
        Metric("headrace_urls_known", _GAUGE, "URLs known to the owners here"),
        Metric("headrace_urls_queued", _GAUGE, "of those, the ones to be fetched, now or when they are due"),
        Metric("headrace_pages_stored", _GAUGE, "of those, the ones with a stored page"),
        Metric("headrace_leases_in_flight", _GAUGE, "leases without a result, or whose body is not stored yet"),
        Metric("headrace_robots_age_seconds", _HISTOGRAM, "of the robots.txt that a grant rested on"),
        Metric("headrace_urls_total", _COUNTER, "URLs discovered, by new, known or refused", ("answer",)),
        Metric("headrace_trap_patterns_paused_total", _COUNTER, "URL patterns paused as endless"),
        # fetch and store
        Metric("headrace_fetches_total", _COUNTER, "requests sent, by what came", ("outcome", "status")),
        Metric("headrace_fetch_bytes_total", _COUNTER, "bytes received"),
        Metric("headrace_leases_expired_total", _COUNTER, "leases that came too late and were dropped"),
        Metric(
            "headrace_policy_violations_total",
            _COUNTER,
            "requests that the fetcher's own watch found amiss",
            ("rule",),
        ),
        Metric("headrace_bodies_total", _COUNTER, "bodies stored: new, or a revisit of the same bytes", ("kind",)),
        Metric("headrace_store_backlog_bytes", _GAUGE, "bodies fetched and not yet durable"),
        Metric("headrace_store_backlog_bytes_max", _GAUGE, "the limit, at which grants stop"),
        # parse
        Metric("headrace_parse_seconds", _HISTOGRAM, "of one page"),
        Metric("headrace_parse_backlog", _GAUGE, "pages that wait for a parser"),
        Metric("headrace_parse_backlog_max", _GAUGE, "the limit, at which grants stop"),
        Metric("headrace_parser_deaths_total", _COUNTER, "parser processes that died or were ended at a limit"),
        # route and index
        Metric("headrace_index_lag_records", _GAUGE, "documents that the sink has not taken, by any route worker"),
        Metric("headrace_documents_total", _COUNTER, "index events sent", ("kind",)),
    )
}
