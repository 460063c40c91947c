//! The counts and the pressure as metrics: the names and units that OpenMetrics has, sums that are cumulative since a moment.

use std::path::Path;

use hangs::model::STEP_BOUNDS_NS;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use store::disk::Disk;

use super::events::{attribute, moment, resource, scope, seconds, text};
use crate::counters::{CountedSince, MetricFamily, MetricLabels, MetricSeries};
use crate::identity::RecordSource;

/// Returns when the kernel was started, in nanoseconds since 1970.
#[must_use]
pub fn boot_ns(disk: &dyn Disk, proc: &Path) -> Option<u64> {
    let bytes = disk.read(&proc.join("stat")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    seconds.trim().parse::<u64>().ok()?.checked_mul(1_000_000_000)
}

/// The moments that the sums are about, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MetricTimes {
    /// Now.
    pub now_ns: u64,
    /// Since when records are counted; now where nothing was counted.
    pub first_record_ns: Option<u64>,
    /// When the kernel was started.
    pub boot_ns: Option<u64>,
}

impl MetricTimes {
    /// Returns the begin of a sum. The clock may have been set back since.
    fn begin(&self, since: CountedSince) -> u64 {
        let begin = match since {
            CountedSince::FirstRecord => self.first_record_ns,
            CountedSince::Boot => self.boot_ns,
        };
        moment(begin.unwrap_or(self.now_ns).min(self.now_ns))
    }
}

fn attributes(labels: &MetricLabels) -> Vec<KeyValue> {
    labels.iter().map(|(label, value)| attribute(label, text(&**value))).collect()
}

fn count(count: u64) -> Number {
    Number::AsInt(i64::try_from(count).unwrap_or(i64::MAX))
}

fn sum(
    times: &MetricTimes,
    since: CountedSince,
    values: &[(MetricLabels, u64)],
    number: fn(u64) -> Number,
) -> Data {
    let points = values.iter().map(|(labels, value)| NumberDataPoint {
        attributes: attributes(labels),
        start_time_unix_nano: times.begin(since),
        time_unix_nano: moment(times.now_ns),
        value: Some(number(*value)),
        ..NumberDataPoint::default()
    });
    Data::Sum(Sum {
        data_points: points.collect(),
        aggregation_temporality: AggregationTemporality::Cumulative.into(),
        is_monotonic: true,
    })
}

fn metric(times: &MetricTimes, family: &MetricFamily) -> Metric {
    let total = format!("{}_total", family.name);
    let (name, unit, data) = match &family.series {
        // A unit in braces is a note: no receiver makes a part of a name of it.
        MetricSeries::Count(since, values) => (total, "{hang}", sum(times, *since, values, count)),
        MetricSeries::Time(since, values) => {
            (total, "s", sum(times, *since, values, |time| Number::AsDouble(seconds(time))))
        }
        MetricSeries::Steps(values) => {
            let points = values.iter().map(|(labels, steps)| HistogramDataPoint {
                attributes: attributes(labels),
                start_time_unix_nano: times.begin(CountedSince::FirstRecord),
                time_unix_nano: moment(times.now_ns),
                count: steps.total(),
                bucket_counts: steps.0.to_vec(),
                explicit_bounds: STEP_BOUNDS_NS.map(seconds).to_vec(),
                ..HistogramDataPoint::default()
            });
            let temporality = AggregationTemporality::Cumulative.into();
            let histogram =
                Histogram { data_points: points.collect(), aggregation_temporality: temporality };
            (family.name.clone(), "s", Data::Histogram(histogram))
        }
        MetricSeries::Flag(value) => {
            let point = NumberDataPoint {
                time_unix_nano: moment(times.now_ns),
                value: Some(count((*value).into())),
                ..NumberDataPoint::default()
            };
            (family.name.clone(), "", Data::Gauge(Gauge { data_points: vec![point] }))
        }
    };
    let (description, unit) = (family.help.to_owned(), unit.to_owned());
    Metric { name, description, unit, data: Some(data), ..Metric::default() }
}

/// Returns the request that tells these families. Those without a series are left out.
#[must_use]
pub fn metrics_request(
    source: &RecordSource,
    facts: &[(String, String)],
    times: &MetricTimes,
    families: &[MetricFamily],
) -> ExportMetricsServiceRequest {
    let is_told = |family: &&MetricFamily| match &family.series {
        MetricSeries::Count(_, values) | MetricSeries::Time(_, values) => !values.is_empty(),
        MetricSeries::Steps(values) => !values.is_empty(),
        MetricSeries::Flag(_) => true,
    };
    let metrics = families.iter().filter(is_told).map(|family| metric(times, family)).collect();
    let scope_metrics =
        vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }];
    let resource = Some(resource(source, facts));
    let of_machine = ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() };
    ExportMetricsServiceRequest { resource_metrics: vec![of_machine] }
}
